"""A run of DeepSeek-V3 with mindrlhf whose training is made up: what it writes on four ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from pipeline.run.run import prepare_plan
from stages.weights.split import split_directory
from stages.weights.strategy.stage import write_strategy
from stages.weights.tensors import load, write_rank
from tests.e2e.outside import DATA
from tests.pipeline.artifacts import commit_spec
from tests.upstream.verl.product import grpoflow

PREFIX = "grpo_model_train.policy_model.model."
OVERRIDES = (
    "engine=mindrlhf", f"engine.mindrlhf_home={DATA / 'mindrlhf_standin' / 'e8a8fc1'}",
    "engine.load_ckpt_format=ms_safetensors", "model=tiny_deepseek_v3", "model.initializer_range=0.25",
    "layout=dp2_mp2_pp1", "layout.train.expert_parallel=2", "layout.train.enable_parallel_optimizer=true",
    "layout.train.parallel_optimizer_threshold_kb=0", "train.prompts_per_step=8",
    "dataset.train_rows=64", "dataset.test_rows=64", "rollout.max_tokens=12", "tokenize.max_prompt_length=64",
)  # fmt: skip


def trained(directory: Path, *overrides: str) -> tuple[str, ...]:
    """Fill directory/store up to grpo and return the run's overrides.

    The trained weights are in `directory/trained`, too, under mindformers' names. A rank's file has the names
    of mindrlhf, its count of steps, and mindformers' counts of tokens.
    """
    run = (f"store={directory / 'store'}", *OVERRIDES, *overrides)
    done = grpoflow(directory, "run", "--until", "tokenize", *run)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    planned, store = prepare_plan(run)
    noise = np.random.default_rng(1)
    weights = {
        name: value + 0.1 * value.std() * noise.standard_normal(value.shape, np.float32)
        for name, value in load(store.path(planned.spec("convert").key)).items()
    }
    complete, made = directory / "trained", directory / "made"
    complete.mkdir()
    write_rank(weights, complete / "model.safetensors", "float32")
    write_strategy(planned.config.model, planned.config.layout.train, made / "train_strategy")
    split_directory(complete, made / "train_strategy", made / "train")
    experts = planned.config.model.deepseek_v3.n_routed_experts
    counter = "model.layers.1.feed_forward.routed_experts.router.router.expert_load"
    for file in made.glob("train/rank_*/*.safetensors"):
        named = {f"{PREFIX}{name}": value for name, value in load_file(file).items()}
        counts = {f"{PREFIX}{counter}": np.ones(experts, np.float32), "step_num": np.array(1)}
        save_file({**named, **counts}, file)
    files = {
        path.relative_to(made).as_posix(): path.read_bytes() for path in made.rglob("*") if path.is_file()
    }
    commit_spec(store, planned.spec("grpo"), files)
    return run
