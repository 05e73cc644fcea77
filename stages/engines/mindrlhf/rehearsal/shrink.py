"""The recipe of a rehearsal: sizes become small, and nothing else changes."""

import itertools
from pathlib import Path
from typing import Any

from stages.engines.mindformers.rehearsal import shim
from stages.engines.mindrlhf import rules
from stages.engines.mindrlhf.config import MindrlhfEngine
from stages.engines.mindrlhf.job import SHORTEST_ROW, Job
from stages.engines.rehearsal import STEPS, keep_existing_scripts
from stages.engines.rehearsal import shrink as shrink_model

MAX_TOKENS = 32
PROMPT = 256
"""Tokens of a prompt that must fit, however many samples share a row."""
BATCH_RULES = (
    "train.prompts_per_step",
    "engine.pack_num",
    "engine.batch_size",
    "engine.ref_model_batch_size",
)
"""Keys whose rules decide whether a step fills mindrlhf's batches."""


def workers(engine: MindrlhfEngine) -> int:
    """Return the workers of a rehearsal.

    Without vLLM the completions of a prompt differ only between replicas: each has one seed.
    """
    return 1 if engine.use_vllm else 2


def worker_bytes(job: Job) -> int:
    """Estimate the memory of one worker: MindSpore, and logits of complete rows in float32 several times.

    Measured with a vocabulary of 152,064: 8.6 GiB with one row at once, 11.4 with two for the reference.
    """
    rows = max(6 * job.engine.batch_size, 4 * (job.engine.ref_model_batch_size if job.engine.use_vllm else 1))
    tokens, pack_num = min(job.rollout.max_tokens, MAX_TOKENS), job.engine.pack_num
    length = _row(pack_num, _prompt(job.tokenize.max_prompt_length, tokens, pack_num), tokens)
    return int(2.2 * 2**30) + rows * length * job.model.vocab_size * 4


def shrink(config: dict[str, Any], workers: int, model: Path, script: Path) -> dict[str, Any]:
    """Return the plain configuration of the rehearsal of a plain configuration."""
    small = shrink_model(config, model, workers)
    engine, tokens = small["engine"], min(small["rollout"]["max_tokens"], MAX_TOKENS)
    engine["env"] = shim.environment(script, engine["env"])
    keep_existing_scripts(engine)
    engine |= {"epochs": 1, "msadapter_home": None, "sft": "off", "max_model_len": None}
    if not engine["use_vllm"]:
        engine["ref_model_batch_size"] = 1  # the second worker needs the memory
    small["train"]["checkpoint_every"] = 1
    tokenize = small["tokenize"]
    tokenize["max_prompt_length"] = _prompt(tokenize["max_prompt_length"], tokens, engine["pack_num"])
    set_lengths(small, tokens)
    _use_few_samples(small, workers)
    small["dataset"]["train_rows"] = STEPS * small["train"]["prompts_per_step"]
    return small


def set_lengths(small: dict[str, Any], tokens: int) -> None:
    """Limit completions to `tokens`, and choose rows that hold pack_num samples of this length."""
    engine, rollout = small["engine"], small["rollout"]
    rollout["max_tokens"] = tokens
    rollout["min_tokens"] = min(rollout["min_tokens"], tokens)
    row = _row(engine["pack_num"], small["tokenize"]["max_prompt_length"], tokens)
    engine |= {"seq_length": row, "max_num_seqs": min(engine["max_num_seqs"], row)}


def _prompt(length: int, tokens: int, pack_num: int) -> int:
    """Return the longest prompt: the run's, or as much as the shortest rows leave, but at least PROMPT."""
    return min(length, max(PROMPT, SHORTEST_ROW // pack_num - tokens - 1))


def _row(pack_num: int, prompt: int, tokens: int) -> int:
    """Return the length of rows for pack_num samples, a multiple of 128 (padded_row_length)."""
    return max(SHORTEST_ROW, -(-pack_num * (prompt + tokens + 1) // 128) * 128)


def _use_few_samples(small: dict[str, Any], workers: int) -> None:
    """Choose the fewest completions per step that fill mindrlhf's batches."""
    batch, group = small["engine"]["chunk_size"] * workers, small["rollout"]["num_generations"]
    sizes = itertools.product(range(batch, 65 * batch, batch), range(min(2, group), group + 1))
    for prompts, generations in sorted(sizes, key=lambda size: (size[0] * size[1], size[0])):
        small["train"]["prompts_per_step"] = prompts
        small["rollout"]["num_generations"] = generations
        problems = rules.RULES.check(Job.from_config(small))
        if not any(problem.path in BATCH_RULES for problem in problems):
            return
