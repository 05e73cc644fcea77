"""Numbers that follow from a run's configuration, and notes that depend on it."""

import pytest

from stages.engines.mindrlhf import notes, rules
from stages.engines.mindrlhf.files import grpo_config
from tests.stages.engines.mindrlhf.jobs import job_of, paths

SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")


@pytest.mark.parametrize(
    ("overrides", "distinct", "noted"),
    [
        ((*SEVEN, "engine.use_vllm=0"), 2, True),
        (("model=qwen2_5_7b", "layout=dp8_mp1_pp1", "engine.use_vllm=0"), 8, False),
    ],
)
def test_few_replicas_generate_few_different_completions(overrides, distinct, noted):
    job = job_of(*overrides, "rollout.num_generations=8")
    assert job.distinct_completions == distinct
    assert any("completions of a prompt only" in note for note in notes.notes(job)) is noted


@pytest.mark.parametrize(("layout", "noted"), [("dp2_mp4_pp1", True), ("dp1_mp4_pp2", False)])
def test_micro_batches_without_a_pipeline_are_noted(layout, noted):
    job = job_of("model=qwen2_5_7b", f"layout={layout}", "layout.train.micro_batch_num=4")
    assert any("layout.train.micro_batch_num=4" in note for note in notes.notes(job)) is noted


@pytest.mark.parametrize(("variant", "noted"), [("base", True), ("instruct", False)])
def test_an_end_token_that_is_also_padding_is_noted(variant, noted):
    job = job_of(*SEVEN, f"model.variant={variant}")
    assert any("is the padding id" in note for note in notes.notes(job)) is noted


@pytest.mark.parametrize(("temperature", "noted"), [(1.0, False), (0.7, True)])
def test_a_temperature_that_the_loss_ignores_is_noted(temperature, noted):
    job = job_of(*SEVEN, f"rollout.temperature={temperature}")
    assert any("rollout.temperature=0.7" in note for note in notes.notes(job)) is noted


@pytest.mark.parametrize(
    ("overrides", "noted"),
    [
        ("engine.contract=0cd087455", True),
        ("engine.contract=0cd087455 train.num_iterations=2", False),
        ("engine.contract=0cd087455 train.prompts_per_step=2 rollout.num_generations=2", False),
        ("engine.contract=e8a8fc1", False),
    ],
)
def test_updates_that_the_older_version_does_not_correct_are_noted(overrides, noted):
    job = job_of(*SEVEN, *overrides.split(), "layout.train.micro_batch_num=4")
    assert any("without ratio and clipping" in note for note in notes.notes(job)) is noted


def test_a_row_holds_all_samples_of_a_pack_and_has_the_shortest_length_at_least():
    assert job_of(*SEVEN).seq_length == job_of(*SEVEN, "engine.pack_num=1").max_model_len == 2048
    four = job_of(*SEVEN, "engine.pack_num=4")
    assert four.sample_length == 1025 and four.seq_length == 4224  # 4 x 1025, up to 33 x 128


def test_resharding_by_numbering_is_rendered_and_limits_layouts_only_if_enabled():
    uneven = ("model=qwen2_5_7b", "layout=dp4_mp2_pp1", "layout.generate.model_parallel=4")
    plain = job_of(*uneven)
    assert rules.RULES.check(plain) == []
    assert grpo_config(plain, paths(plain), False)["rl_config"]["enable_reshard_optimizer"] is False
    even = job_of(*SEVEN, "engine.enable_reshard_optimizer=true")
    assert grpo_config(even, paths(even), False)["rl_config"]["enable_reshard_optimizer"] is True
