"""engine=mindrlhf around a stand-in checkout (tests/data/mindrlhf_standin): real msrun, two workers."""

from tests.e2e.conftest import run_plain
from tests.e2e.outside import MINDRLHF, by_hand, check_resumed, dry_run, sourced, standin
from tests.processes import living


def test_a_run_that_hangs_is_ended_and_the_next_resumes(mindrlhf_store):
    # Long enough for a loaded machine to start msrun and its workers, which write nothing meanwhile.
    hanging = [standin("hang@3"), "engine.silence_timeout_s=25"]
    hung = run_plain(mindrlhf_store, *MINDRLHF, *hanging, code=1)
    assert "hung: no worker wrote a line for 25 s" in hung.stderr
    assert not living(mindrlhf_store)
    run_plain(mindrlhf_store, *MINDRLHF, code=0)
    check_resumed(mindrlhf_store, 2)


def test_the_scripts_of_a_dry_run_work_without_grpoflow(mindrlhf_store):
    (script,) = dry_run(mindrlhf_store, *MINDRLHF)
    logs = mindrlhf_store.parent / "logs"
    assert "run grpo train end" in by_hand(script, logs)
    assert (logs / "worker_1.log").exists()


def test_it_runs_in_its_container_with_its_environment(mindrlhf_prepared):
    assert sourced(mindrlhf_prepared.parent) == [("grpo", "yes")]
