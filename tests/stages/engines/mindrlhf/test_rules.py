import pytest

from pipeline.config.load import load
from stages.engines.mindrlhf import notes, rules
from stages.engines.mindrlhf.engine import job as mindrlhf_job
from stages.engines.mindrlhf.grpo_yaml import grpo_config
from tests.stages.engines.mindrlhf.jobs import job_of, paths

SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")


def test_notes_tell_what_no_rule_forbids():
    told = " ".join(notes.notes(job_of(*SEVEN, "train.weight_decay=0.01", "rollout.min_p=0.1", "seed=7")))
    assert "decays by 0.1 whatever is asked" in told
    assert "train.steps=200000 is only the length" in told
    assert "rollout.min_p=0.1: mindrlhf never hands it on" in told
    assert "seed=7 does not change what is sampled" in told
    assert "+engine.env.WORLD_SIZE='8'" in told and "one per generation replica" not in told


def test_few_replicas_make_few_different_completions():
    job = job_of(*SEVEN, "engine.use_vllm=0", "rollout.num_generations=8")
    assert (job.layout.generate.data_parallel, job.distinct_completions) == (2, 2)
    told = " ".join(notes.notes(job))
    assert "of the 8 completions of a prompt only 2 differ" in told and "WORLD_SIZE" not in told
    eight = job_of("model=qwen2_5_7b", "layout=dp8_mp1_pp1", "engine.use_vllm=0", "rollout.num_generations=8")
    assert "completions of a prompt only" not in " ".join(notes.notes(eight))


def test_a_row_holds_all_samples_of_a_pack_and_has_the_shortest_length_at_least():
    assert job_of(*SEVEN).seq_length == job_of(*SEVEN, "engine.pack_num=1").max_model_len == 2048
    four = job_of(*SEVEN, "engine.pack_num=4")
    assert four.sample_length == 1025 and four.seq_length == 4224  # 4 x 1025, up to 33 x 128


def test_resharding_by_numbering_is_rendered_and_limits_layouts_only_when_asked_for():
    uneven = ("model=qwen2_5_7b", "layout=dp4_mp2_pp1", "layout.generate.model_parallel=4")
    plain = job_of(*uneven)
    assert rules.RULES.check(plain) == []
    assert grpo_config(plain, paths(plain), False)["rl_config"]["enable_reshard_optimizer"] is False
    even = job_of(*SEVEN, "engine.enable_reshard_optimizer=true")
    assert grpo_config(even, paths(even), False)["rl_config"]["enable_reshard_optimizer"] is True


@pytest.mark.parametrize(
    ("model", "form", "told"),
    [
        ("qwen2_5_0_5b", "hf_safetensors", True),
        ("qwen2_5_1_5b", "hf_safetensors", True),
        ("qwen2_5_1_5b", "ms_safetensors", False),
        ("qwen2_5_3b", "hf_safetensors", False),
        ("qwen2_5_7b", "hf_safetensors", False),
    ],
)
def test_a_plan_says_what_becomes_of_weights_in_one_file(model, form, told):
    config = load(
        ["engine=mindrlhf", f"model={model}", "layout=dp1_mp2_pp1", f"engine.load_ckpt_format={form}"]
    )
    assert any("are one file without" in note for note in notes.notes(mindrlhf_job(config))) is told


def test_a_directory_that_is_here_is_looked_into(tmp_path):
    job = job_of(*SEVEN, f"model.path={tmp_path}")
    assert any("are one file without" in note for note in notes.notes(job))
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert not any("are one file without" in note for note in notes.notes(job))
