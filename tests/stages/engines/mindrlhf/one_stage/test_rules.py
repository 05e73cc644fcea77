"""What plan refuses, and what it tells."""

import pytest

from pipeline.config.load import load
from pipeline.plan.graph import plan
from stages.base.errors import ConfigError
from stages.engines.mindrlhf.one_stage.rules import notes
from tests.stages.engines.mindrlhf.one_stage.jobs import SEVEN, job_of


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (["layout=dp1_mp1_pp1"], "cards=1: must be at least 2"),
        (["layout.generate.pipeline_stage=2"], "layout.generate.pipeline_stage=2: generation must not be"),
        (
            ["layout.train.enable_parallel_optimizer=true"],
            "layout.train.enable_parallel_optimizer=True: must be false",
        ),
        (["train.prompts_per_step=3"], "train.prompts_per_step=3: must be a multiple of engine.chunk_size"),
        (
            ["engine.contract=875f92b"],
            "train.prompts_per_step=32: must be engine.chunk_size x layout.generate.data_parallel = 2",
        ),
        (
            ["train.prompts_per_step=2", "rollout.num_generations=3", "layout.train.micro_batch_num=4"],
            "its 6 samples must be a multiple of 4",
        ),
        (
            ["engine.seq_length=1000"],
            "engine.seq_length=1000: tokenize.max_prompt_length + rollout.max_tokens",
        ),
        (["engine.num_blocks=8"], "engine.num_blocks=8: must be at least 32"),
        (["train.num_iterations=2"], "train.num_iterations=2: must be 1"),
        (["train.schedule=linear"], "train.schedule=linear: must be cosine"),
        (["rollout.min_p=0.1"], "rollout.min_p=0.1: must be null"),
        (["reward=boxed"], "reward.functions=['qwen_accuracy']: must be accuracy and format"),
        (["reward.weights=[1.0,0.5]"], "must be accuracy and format, each with weight 1"),
        (["sft.enabled=true"], "sft.enabled=True: engine=mindrlhf_one_stage starts from the fetched weights"),
        (["model.qkv_concat=true"], "model.qkv_concat=True: must be false"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(overrides: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        job_of(*SEVEN, *overrides)
    assert said in str(refused.value)


def test_the_plan_is_the_table_s() -> None:
    planned = plan(load(["engine=mindrlhf_one_stage", *SEVEN]), lambda path: "0")
    assert [spec.name for spec in planned.specs][2:] == [
        "convert", "tokenize", "strategy", "split", "grpo", "evaluate", "export", "report",
    ]  # fmt: skip
    assert planned.config.split.roles == ("train", "generate")
    assert planned.config.split.format == planned.config.convert.format == "ckpt"
    assert planned.spec("grpo").inputs["weights"].stage == "split"


def test_what_the_first_version_does_to_its_reference_is_told() -> None:
    first = notes(job_of(*SEVEN, "engine.contract=32599d0", "train.prompts_per_step=2"))
    assert any("loads no weights into its reference" in note for note in first)
    assert any("x (the number of training prompts // 16) steps" in note for note in notes(job_of(*SEVEN)))
