import dataclasses
from pathlib import Path

import pytest

from pipeline.config.load import load
from pipeline.errors import ConfigError
from stages.engines.mindrlhf import notes, rules
from stages.engines.mindrlhf.engine import job as mindrlhf_job
from stages.engines.mindrlhf.grpo_yaml import grpo_config
from tests.stages.engines.mindrlhf.jobs import job_of, places

SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")


def told(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        job_of(*overrides)
    return str(error.value)


def test_what_people_run_breaks_no_rule() -> None:
    assert rules.check(job_of(*SEVEN), sft_enabled=False) == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        # dp2: 1 prompt x 2 generations = 2 packs, an update takes 1 x 2 x 2
        (
            ["layout=dp2_mp2_pp2", "layout.generate.data_parallel=1", "layout.generate.model_parallel=4",
             "layout.generate.pipeline_stage=2", "train.prompts_per_step=1", "rollout.num_generations=2"],
            "2 packs a step are fewer than the 4 of one update",
        ),
        (["train.prompts_per_step=3"], "must be a multiple of engine.chunk_size x layout.generate"),
        (["layout.train.micro_batch_num=3"], "256 packs must be a multiple of 3, an update"),
        (["engine.ref_model_batch_size=3"], "must be a multiple of 6, a reference batch"),
        (["engine.batch_size=3", "layout.train.micro_batch_num=2"], "an old-policy batch"),
        (["engine.pack_num=3"], "must divide the 256 samples of a step"),
        (["layout.train.micro_batch_num=1"], "at least pipeline_stage=2 micro-batches"),
        (["engine.seq_length=1024"], "rollout.max_tokens + 1 = 1025 must fit"),
        (["engine.max_model_len=1023"], "tokenize.max_prompt_length + rollout.max_tokens = 1024 must fit"),
        (["engine.seq_length=1152"], "must be at least 2048"),
        (["engine.full_monitor=true"], "Neither tells KL and clip share"),
        (["engine.use_vllm=0", "layout=dp1_mp4_pp1"], "never learns with layout.generate.data_parallel=1"),
        (["engine.use_vllm=2"], "infer_worker.py:388"),
        (["train.schedule=constant"], "the learning rate must fall"),
        (["layout.train.opt_offload=true"], "adam.py:161"),
        (["tokenize.max_prompt_length=32500"], "at most model.max_position_embeddings=32768"),
        (["layout.generate.pipeline_stage=2", "layout.generate.data_parallel=1"], "must not be pipelined"),
        (["layout.reference.data_parallel=1"], "occupies 4 cards (dp*mp*pp*cp), must be cards=8"),
        (["layout=dp1_mp8_pp1"], "must divide num_key_value_heads=4 (mindformers llama_transformer.py:187)"),
        (["layout.train.expert_parallel=2"], "Qwen2 has no experts"),
        (["engine.load_ckpt_format=ckpt"], "must be 0 with engine.load_ckpt_format=ckpt"),
        (["model.qkv_concat=true"], "model.qkv_concat=True: must be false"),
        (["sft.enabled=true"], "engine=mindrlhf starts from the fetched weights"),
        (["reward.functions=[answer_format]"], "mindrlhf has no such reward"),
        (["reward.weights=[1.0,2.0]"], "one weight for each"),
        (["train.loss_type=dapo"], "must be grpo"),
        (["train.max_grad_norm=null"], "must be 1.0: mindformers' training cell clips"),
        (["train.checkpoint_every=0"], "must be at least 1"),
        (["model.pad_token_id=153643"], "model.pad_token_id=153643: must be from 0 and below"),
    ],
)  # fmt: skip
def test_every_rule_has_a_config_that_breaks_it(overrides: list[str], message: str) -> None:
    assert message in told(*SEVEN, *overrides)


def test_a_sequence_must_divide_among_the_cards_that_cut_it() -> None:
    job = job_of(*SEVEN, "layout.train.use_seq_parallel=true")
    odd = dataclasses.replace(job, engine=dataclasses.replace(job.engine, seq_length=1153))
    assert any("must be a multiple of 4" in str(problem) for problem in rules.check(odd, False))


def test_notes_tell_what_no_rule_forbids() -> None:
    told = " ".join(notes.notes(job_of(*SEVEN, "train.weight_decay=0.01", "rollout.min_p=0.1", "seed=7")))
    assert "decays by 0.1 whatever is asked" in told
    assert "train.steps=200000 is only the length" in told
    assert "rollout.min_p=0.1: mindrlhf never hands it on" in told
    assert "seed=7 does not change what is sampled" in told
    assert "+engine.env.WORLD_SIZE='8'" in told and "one per generation replica" not in told


def test_few_replicas_make_few_different_completions() -> None:
    job = job_of(*SEVEN, "engine.use_vllm=0", "rollout.num_generations=8")
    assert (job.layout.generate.data_parallel, job.distinct_completions) == (2, 2)
    told = " ".join(notes.notes(job))
    assert "of the 8 completions of a prompt only 2 differ" in told and "WORLD_SIZE" not in told
    eight = job_of("model=qwen2_5_7b", "layout=dp8_mp1_pp1", "engine.use_vllm=0", "rollout.num_generations=8")
    assert "completions of a prompt only" not in " ".join(notes.notes(eight))


def test_a_row_holds_all_samples_of_a_pack_and_has_the_shortest_length_at_least() -> None:
    assert job_of(*SEVEN).seq_length == job_of(*SEVEN, "engine.pack_num=1").max_model_len == 2048
    four = job_of(*SEVEN, "engine.pack_num=4")
    assert four.sample_length == 1025 and four.seq_length == 4224  # 4 x 1025, up to 33 x 128


def test_resharding_by_numbering_is_rendered_and_limits_layouts_only_when_asked_for() -> None:
    uneven = ("model=qwen2_5_7b", "layout=dp4_mp2_pp1", "layout.generate.model_parallel=4")
    plain = job_of(*uneven)
    assert rules.check(plain, sft_enabled=False) == []
    assert grpo_config(plain, places(plain), False)["rl_config"]["enable_reshard_optimizer"] is False
    even = job_of(*SEVEN, "engine.enable_reshard_optimizer=true")
    assert grpo_config(even, places(even), False)["rl_config"]["enable_reshard_optimizer"] is True


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
def test_a_plan_says_what_becomes_of_weights_in_one_file(model: str, form: str, told: bool) -> None:
    config = load(
        ["engine=mindrlhf", f"model={model}", "layout=dp1_mp2_pp1", f"engine.load_ckpt_format={form}"]
    )
    assert any("are one file without" in note for note in notes.notes(mindrlhf_job(config))) is told


def test_a_directory_that_is_here_is_looked_into(tmp_path: Path) -> None:
    job = job_of(*SEVEN, f"model.path={tmp_path}")
    assert any("are one file without" in note for note in notes.notes(job))
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    assert not any("are one file without" in note for note in notes.notes(job))
