"""The rehearsal's recipe is the run's, but for sizes."""

from pathlib import Path

import pytest

from pipeline.config.load import load
from stages.engines.mindrlhf import rules
from stages.engines.mindrlhf.files import CONFIG, all_configs, grpo_config
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.mindrlhf.rehearsal import shrink
from tests.stages.engines.rendered import flat

ROOT = Path("/run")
PATHS = Paths(ROOT, ROOT / "data", ROOT / "hf", ROOT / "hf", ROOT / "hf", ROOT / "hf")
RECIPES = {
    "7b": ["experiment=mindrlhf_7b", "dataset.path=/data", "model.path=/hf"],
    "tuned": [
        "engine=mindrlhf", "model=qwen2_5_1_5b", "dataset=gsm8k", "dataset.path=/data", "model.path=/hf",
        "layout=dp4_mp2_pp1", "train.beta=0.04", "rollout.temperature=0.7", "rollout.num_generations=16",
        "train.num_iterations=2", "train.ref_model_sync_steps=4", "train.ref_model_mixup_alpha=1.0",
        "engine.batch_size=2", "engine.pack_num=4", "engine.seq_length=8192", "train.prompts_per_step=64",
        "layout.train.recompute=true", "engine.load_ckpt_format=ms_safetensors", "seed=7",
        "engine.max_num_seqs=4096",
    ],
    "older": ["experiment=mindrlhf_7b", "dataset.path=/data", "model.path=/hf", "engine.contract=0cd087455"],
}  # fmt: skip
DEGREES = ["data_parallel", "model_parallel", "pipeline_stage", "context_parallel", "micro_batch_num"]
RENDERED = {  # keys of grpo_config.yaml that may differ: sizes, and what follows from whole weights
    *(f"rl_config.{key}" for key in (
        "epochs", "seq_length", "num_generations", "num_rollouts", "save_ckpt_interval",
    )),
    *(f"generate_config.{key}" for key in (
        "max_model_len", "max_num_batched_tokens", "max_num_seqs", "max_prompt_length",
        "sampling_config.max_tokens", "sampling_config.min_tokens",
    )),
    *(f"{section}_config.{key}" for section in ("actor", "ref", "generate")
      for key in ("offset", *(f"parallel_config.{degree}" for degree in DEGREES))),
}  # fmt: skip
MODEL_SIZES = {
    "hidden_size", "num_layers", "num_heads", "n_kv_heads", "intermediate_size", "seq_length", "offset",
    "max_decode_length", "min_decode_length",
}  # fmt: skip


def _plain(name):
    return load(RECIPES[name]).plain()


def _small(name, workers=1):
    return shrink.shrink(_plain(name), workers, Path("/small"), Path("/script.json"))


def _job(values):
    names = ("model", "layout", "tokenize", "rollout", "reward", "train", "engine", "seed")
    return Job.from_config({name: values[name] for name in names})


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("resume", [False, True])
def test_only_rendered_sizes_change(name, resume):
    original = flat(grpo_config(_job(_plain(name)), PATHS, resume))
    small = flat(grpo_config(_job(_small(name)), PATHS, resume))
    assert original.keys() == small.keys()
    different = {key for key in original if original[key] != small[key]}
    assert different <= RENDERED
    assert different  # it did shrink


@pytest.mark.parametrize("name", RECIPES)
def test_the_models_files_differ_in_size_only(name):
    original = all_configs(_job(_plain(name)), PATHS, resume=False)
    small = all_configs(_job(_small(name)), PATHS, resume=False)
    for file in original.keys() - {CONFIG}:
        left, right = flat(original[file]["model"]), flat(small[file]["model"])
        different = {key.rpartition(".")[2] for key in left if left[key] != right[key]}
        assert left.keys() == right.keys()
        assert different <= MODEL_SIZES
        assert {"hidden_size", "num_layers"} <= different


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_small_recipe_breaks_no_rule_and_fills_every_batch(name, workers):
    small = _small(name, workers)
    job = _job(small)
    assert [str(problem) for problem in rules.RULES.check(job)] == []
    assert job.rollout.num_generations >= 2  # else nothing to compare with
    assert small["dataset"]["train_rows"] == shrink.STEPS * small["train"]["prompts_per_step"]
    assert job.packs % (job.engine.ref_model_batch_size * workers) == 0


def test_rows_grow_if_many_samples_share_a_row():
    packed = ["engine=mindrlhf", "model=qwen2_5_7b", "model.path=/hf", "dataset=gsm8k", "dataset.path=/data"]
    packed += ["engine.pack_num=16", "train.prompts_per_step=32", "engine.seq_length=16512"]
    small = shrink.shrink(load(packed).plain(), 1, Path("/small"), Path("/script.json"))
    assert small["tokenize"]["max_prompt_length"] == shrink.PROMPT
    assert rules.RULES.check(_job(small)) == []
    shrink.set_lengths(small, 200)  # longer answers
    assert rules.RULES.check(_job(small)) == []


@pytest.mark.parametrize("contract", ["e8a8fc1", "0cd087455"])
@pytest.mark.parametrize(
    "layout", ["layout=dp1_mp4_pp2", "layout=dp4_mp2_pp1", "layout=dp2_mp8_pp2 model=qwen2_5_32b"]
)
@pytest.mark.parametrize("form", ["hf_safetensors", "ms_safetensors", "ckpt"])
def test_without_vllm_completions_come_from_two_replicas(form, layout, contract):
    recipe = [
        "experiment=mindrlhf_7b", "dataset.path=/data", "model.path=/hf", "engine.use_vllm=0",
        f"engine.load_ckpt_format={form}", f"engine.contract={contract}",
    ]  # fmt: skip
    plain = load([*recipe, *layout.split()]).plain()
    count = shrink.workers(_job(plain).engine)
    assert count == 2
    small = shrink.shrink(plain, count, Path("/small"), Path("/script.json"))
    assert rules.RULES.check(_job(small)) == []
    assert shrink.worker_bytes(_job(small)) <= shrink.worker_bytes(_job(plain))
