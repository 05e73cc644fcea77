"""What plan makes of a run, and what it tells."""

from pipeline.config.load import load
from pipeline.plan.graph import plan
from stages.engines.mindrlhf_one_stage.rules import notes
from tests.stages.engines.mindrlhf_one_stage.jobs import SEVEN, job_of


def test_the_plan_is_the_table_s():
    planned = plan(load(["engine=mindrlhf_one_stage", *SEVEN]), lambda path: "0")
    assert [spec.name for spec in planned.specs][2:] == [
        "convert", "tokenize", "strategy", "split", "grpo", "evaluate", "export", "report",
    ]  # fmt: skip
    assert planned.config.split.roles == ("train", "generate")
    assert planned.config.split.format == planned.config.convert.format == "ckpt"
    assert planned.spec("grpo").inputs["weights"].stage == "split"


def test_what_the_first_version_does_to_its_reference_is_told():
    first = notes(job_of(*SEVEN, "engine.contract=32599d0", "train.prompts_per_step=2"))
    assert any("loads no weights into its reference" in note for note in first)
    assert any("x (the number of training prompts // 16) steps" in note for note in notes(job_of(*SEVEN)))
