"""Arguments of both versions, and notes and numbers that follow from a run's configuration."""

import pytest

from stages.engines.mindrlhf.engine import notes
from stages.engines.mindrlhf.files import grpo_config
from stages.engines.mindrlhf.stage import arguments
from tests.stages.engines.mindrlhf.jobs import DATA, job_of, paths

SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
MICRO = "layout.train.micro_batch_num=4"
OLDER = f"engine.contract=0cd087455 {MICRO}"


@pytest.mark.parametrize("contract", ["0cd087455", "e8a8fc1"])
def test_arguments_are_those_of_the_version(contract):
    job = job_of(*SEVEN, f"engine.contract={contract}")
    main = (DATA / "mindrlhf_standin" / contract / "examples/grpo/qwen_grpo_tutorial/main.py").read_text()
    for argument in arguments(job, paths(job), resume=True):
        assert f'"{argument.partition("=")[0]}"' in main


@pytest.mark.parametrize(
    ("note", "noted", "silent"),
    [
        (
            "completions of a prompt only 2 differ",
            "engine.use_vllm=0",
            "engine.use_vllm=0 layout=dp8_mp1_pp1",
        ),
        ("micro_batch_num=4", f"layout=dp2_mp4_pp1 {MICRO}", f"layout=dp1_mp4_pp2 {MICRO}"),
        ("is the padding id", "model.variant=base", "model.variant=instruct"),
        ("rollout.temperature=0.7", "rollout.temperature=0.7", "rollout.temperature=1.0"),
        ("without ratio and clipping", OLDER, f"{OLDER} train.num_iterations=2"),
        ("without ratio and clipping", OLDER, f"{OLDER} train.prompts_per_step=2 rollout.num_generations=2"),
        ("without ratio and clipping", OLDER, MICRO),
    ],
)
def test_settings_without_the_expected_effect_are_noted(note, noted, silent):
    for overrides, expected in ((noted, True), (silent, False)):
        job = job_of(SEVEN[0], *(() if "layout=" in overrides else SEVEN[1:]), *overrides.split())
        assert any(note in text for text in notes(job)) is expected, overrides


def test_a_row_holds_all_samples_of_a_pack_and_has_the_shortest_length_at_least():
    assert job_of(*SEVEN).seq_length == job_of(*SEVEN, "engine.pack_num=1").max_model_len == 2048
    four = job_of(*SEVEN, "engine.pack_num=4")
    assert four.sample_length == 1025 and four.seq_length == 4224  # 4 x 1025, up to 33 x 128


def test_resharding_by_numbering_is_rendered_and_limits_layouts_only_if_enabled():
    for overrides, enabled in (
        (("layout=dp4_mp2_pp1", "layout.generate.model_parallel=4"), False),
        ((SEVEN[1], "engine.enable_reshard_optimizer=true"), True),
    ):
        job = job_of(SEVEN[0], *overrides)
        assert grpo_config(job, paths(job), False)["rl_config"]["enable_reshard_optimizer"] is enabled
