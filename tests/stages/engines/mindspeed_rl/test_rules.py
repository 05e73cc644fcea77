"""What no row of rules says: machines, and what a plan tells."""

from stages.engines.mindspeed_rl import rules
from tests.stages.engines.mindspeed_rl.jobs import SEVEN, WINDOWS, job_of

WINDOW = ("engine.contract=667a547",)


def test_the_rules_of_scoring_count_machines():
    job = job_of(*SEVEN, "train.prompts_per_step=32")
    assert rules.PLACED.check(rules.Placed(job, 2)) == []
    (problem,) = rules.PLACED.check(rules.Placed(job, 3))
    assert "machines, each with a process that scores, = 3" in str(problem)
    earlier = job_of(*SEVEN, *WINDOW)
    assert rules.PLACED.check(rules.Placed(earlier, 3)) == []  # one process for all scores there


def test_a_plan_says_what_no_rule_forbids():
    notes = " ".join(rules.notes(job_of(*SEVEN)))
    assert "engine.mindspeed_rl_home is not set: contract 05a90d7 is assumed; run refuses" in notes
    assert "engine.env.LD_PRELOAD is not set" in notes
    assert "holds exactly with 1" in notes
    settled = job_of(
        *SEVEN,
        f"engine.mindspeed_rl_home={WINDOWS['05a90d7']}",
        "+engine.env.LD_PRELOAD=/usr/lib/libjemalloc.so.2",
        "engine.micro_batch_size=1",
    )
    told = " ".join(rules.notes(settled))
    assert "is not set" not in told and "holds exactly" not in told
