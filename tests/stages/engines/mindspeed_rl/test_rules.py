"""Each rule with the smallest change that breaks it, and the nearest that keeps it."""

import pytest

from pipeline.errors import ConfigError
from stages.engines.mindspeed_rl import rules
from tests.stages.engines.mindspeed_rl.jobs import SEVEN, WINDOWS, job_of

APART = ("engine.use_integrated_worker=false", "launcher.cards_per_node=32")
WINDOW = ("engine.contract=667a547",)


def told(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        job_of(*SEVEN, *overrides)
    return str(error.value)


def test_what_people_run_breaks_no_rule() -> None:
    assert rules.check(job_of(*SEVEN), sft_enabled=False, nodes=2) == []


@pytest.mark.parametrize(
    ("breaks", "message", "keeps"),
    [
        (
            ["layout.generate.pipeline_stage=2", "layout.generate.data_parallel=8"],
            "pipeline_parallel for vllm",
            ["layout.generate.pipeline_stage=1"],
        ),
        (["train.prompts_per_step=24"], "layout.generate.data_parallel = 16", ["train.prompts_per_step=48"]),
        (
            ["layout.generate.model_parallel=4", "train.prompts_per_step=6"],
            "must be a multiple of layout.train.data_parallel = 4",
            ["layout.generate.model_parallel=4", "train.prompts_per_step=8"],
        ),
        (
            ["train.prompts_per_step=16", "engine.micro_batch_size=3"],
            "engine.micro_batch_size=3: must divide the 32 completions of a replica",
            ["train.prompts_per_step=16", "engine.micro_batch_size=8"],
        ),
        (
            ["engine.mini_batch_size=20"],
            "engine.mini_batch_size=20: must divide train.prompts_per_step=32",
            ["engine.mini_batch_size=16"],
        ),
        (
            ["engine.mini_batch_size=1"],
            "its 8 completions must be a multiple of layout.train.data_parallel x engine.micro_batch",
            ["engine.mini_batch_size=2"],
        ),
        (
            ["engine.forward_micro_batch_size=5"],
            "must divide the 64 completions of one replica",
            ["engine.forward_micro_batch_size=8"],
        ),
        (["engine.seq_length=4095"], "rollout.max_tokens = 4096 must fit", ["engine.seq_length=4096"]),
        (
            ["engine.seq_length=4098", "engine.max_model_len=4096"],
            "must be at least seq_length=4098",
            ["engine.seq_length=4096", "engine.max_model_len=4096"],
        ),
        (["engine.seq_length=4097"], "must be a multiple of 2, the parts", ["engine.seq_length=4098"]),
        (
            ["tokenize.max_prompt_length=30721"],
            "must be at most model.max_position_embeddings=32768",
            ["tokenize.max_prompt_length=30720"],
        ),
        (
            ["engine.reference_npus=16"],
            "engine.reference_npus=16: must be null with integrated workers",
            [*APART, "engine.reference_npus=16"],
        ),
        (
            [*APART, "engine.reference_npus=6"],
            "engine.reference_npus=6: must be a multiple of layout.train's",
            [*APART, "engine.reference_npus=4"],
        ),
        (
            [*APART, "engine.reference_npus=12"],
            "must be a multiple of replicas of engine.reference_npus = 3",
            [*APART, "engine.reference_npus=8"],
        ),
        (
            [*APART, "engine.reward_npus=4"],
            "engine.reward_load: a reward model needs both",
            [*APART, "engine.reward_npus=4", "engine.reward_load=/models/reward"],
        ),
        (
            ["engine.verifier_function=[base_accuracy]"],
            "an unknown one is skipped silently",
            ["engine.verifier_function=[math_verify_reward]"],
        ),
        (
            [*WINDOW, "engine.verifier_function=[math_17k_acc]"],
            "must be one of acc, base_acc, format, step, strict_format",
            [*WINDOW, "engine.verifier_function=[acc]"],
        ),
        (
            ["engine.verifier_weight=[1.0,1.0]"],
            "must have one weight for each of the 1 functions",
            ["engine.verifier_function=[acc,format]", "engine.verifier_weight=[1.0,1.0]"],
        ),
        (["engine.prompt_type=mine"], "must be one of", ["engine.prompt_type=qwen_math_r1"]),
        ([*WINDOW, "train.steps=450"], "must divide train.steps=450", [*WINDOW, "train.steps=400"]),
        (
            [*WINDOW, "engine.use_remove_padding=true"],
            "contract 667a547, which has no remove_padding",
            ["engine.use_remove_padding=true"],
        ),
        (
            [*WINDOW, "layout.train.opt_offload=true"],
            "contract 667a547, which has no swap_optimizer",
            ["layout.train.opt_offload=true"],
        ),
        (
            ["layout.train.opt_offload=true", "layout.train.enable_parallel_optimizer=false"],
            "needs layout.train.enable_parallel_optimizer=true",
            ["layout.train.enable_parallel_optimizer=false"],
        ),
        (
            [*WINDOW, "layout=dp4_mp2_pp1_cp2"],
            "which has no context_parallel_algo",
            ["layout=dp4_mp2_pp1_cp2"],
        ),
        (["layout=dp1_mp4_pp1_cp2"], "model_parallel x context_parallel = 8", ["layout=dp1_mp2_pp1_cp2"]),
        (["model.vocab_size=151937"], "must divide vocab_size=151937", ["model.vocab_size=151936"]),
        (["train.epsilon_high=0.28"], "its one clip_ratio holds for both sides", ["train.epsilon_high=0.2"]),
        (["train.loss_type=dapo"], "must be grpo", ["train.loss_type=grpo"]),
        (["train.checkpoint_every=0"], "must be at least 1", ["train.checkpoint_every=1"]),
        (["train.warmup_steps=500"], "must be below train.steps=500", ["train.warmup_steps=499"]),
        (["rollout.min_tokens=1"], "its sampling_config has no such key", ["rollout.min_p=0.1"]),
        (["rollout.repetition_penalty=1.1"], "its sampling_config has no such key", ["rollout.top_k=20"]),
        (["tokenize.chat_template=true"], "engine.prompt_type is the template", []),
        (["tokenize.over_long=truncate"], "which must not be cut", []),
        (["sft.enabled=true"], "engine=mindspeed_rl starts from the fetched weights", []),
        (["layout.train.expert_parallel=2"], "Qwen2 has no experts", []),
    ],
)
def test_every_rule_has_a_config_that_breaks_it_and_one_that_keeps_it(
    breaks: list[str], message: str, keeps: list[str]
) -> None:
    assert message in told(*breaks)
    job_of(*SEVEN, *keeps)


def test_the_rules_of_scoring_count_machines() -> None:
    job = job_of(*SEVEN, "train.prompts_per_step=32")
    assert rules.check(job, sft_enabled=False, nodes=2) == []
    (problem,) = rules.check(job, sft_enabled=False, nodes=3)
    assert "must be a multiple of machines, each with a process that scores = 3" in str(problem)
    earlier = job_of(*SEVEN, *WINDOW)
    assert rules.check(earlier, sft_enabled=False, nodes=3) == []  # one process for all scores there


def test_a_plan_says_what_no_rule_forbids() -> None:
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
