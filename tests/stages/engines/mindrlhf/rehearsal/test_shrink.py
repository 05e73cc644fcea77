"""The rehearsal's recipe is the run's, but for sizes."""

from pathlib import Path

import pytest

from pipeline.config.load import load
from stages.engines.mindrlhf import rules
from stages.engines.mindrlhf.files import CONFIG, all_configs
from stages.engines.mindrlhf.job import Job, Paths
from stages.engines.mindrlhf.rehearsal import shrink
from stages.engines.upstream import leaves

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
    "packed": [
        "engine=mindrlhf", "model=qwen2_5_7b", "model.path=/hf", "dataset=gsm8k", "dataset.path=/data",
        "engine.pack_num=16", "train.prompts_per_step=32", "engine.seq_length=16512",
    ],
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


def _small(name, workers=1):
    return shrink.shrink(load(RECIPES[name]).plain(), workers, Path("/small"), Path("/script.json"))


def _configs(values, resume):
    files = all_configs(Job.from_config(values), PATHS, resume)
    shown = {file: content if file == CONFIG else content["model"] for file, content in files.items()}
    return {file: dict(leaves(content)) for file, content in shown.items()}


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("resume", [False, True])
def test_only_rendered_sizes_change(name, resume):
    original, small = (_configs(values, resume) for values in (load(RECIPES[name]).plain(), _small(name)))
    for file, before in original.items():
        after = small[file]
        assert before.keys() == after.keys()
        different = {key for key in before if before[key] != after[key]}
        if file == CONFIG:
            assert different and different <= RENDERED
        else:
            sizes = {key.rpartition(".")[2] for key in different}
            assert {"hidden_size", "num_layers"} <= sizes <= MODEL_SIZES


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_the_small_recipe_breaks_no_rule_and_fills_every_batch(name, workers):
    small = _small(name, workers)
    job = Job.from_config(small)
    assert [str(problem) for problem in rules.RULES.check(job)] == []
    assert job.rollout.num_generations >= 2  # else nothing to compare with
    assert small["dataset"]["train_rows"] == shrink.STEPS * small["train"]["prompts_per_step"]
    assert job.packs % (job.engine.ref_model_batch_size * workers) == 0


def test_rows_grow_if_many_samples_share_a_row():
    small = _small("packed")
    assert small["tokenize"]["max_prompt_length"] == shrink.PROMPT
    small["rollout"]["max_tokens"] = 200  # longer answers
    assert rules.RULES.check(Job.from_config(small)) == []


@pytest.mark.parametrize("contract", ["e8a8fc1", "0cd087455"])
@pytest.mark.parametrize(
    "layout", ["layout=dp1_mp4_pp2", "layout=dp4_mp2_pp1", "layout=dp2_mp8_pp2 model=qwen2_5_32b"]
)
@pytest.mark.parametrize("form", ["hf_safetensors", "ms_safetensors", "ckpt"])
def test_without_vllm_completions_come_from_two_replicas(form, layout, contract):
    recipe = [*RECIPES["7b"], "engine.use_vllm=0", f"engine.load_ckpt_format={form}"]
    plain = load([*recipe, f"engine.contract={contract}", *layout.split()]).plain()
    count = shrink.workers(Job.from_config(plain).engine)
    assert count == 2
    small = Job.from_config(shrink.shrink(plain, count, Path("/small"), Path("/script.json")))
    assert rules.RULES.check(small) == []
    assert 2**32 < shrink.worker_bytes(small) < 2**34
