"""The same recipe, small: what says size becomes small, and nothing else changes."""

import copy
import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stages.engines.mindformers.rehearsal import shim
from stages.engines.mindformers.rehearsal.shrink import STEPS, small_shape
from stages.engines.mindrlhf import rules
from stages.engines.mindrlhf.config import MindrlhfEngine
from stages.engines.mindrlhf.job import SHORTEST_ROW, Job
from stages.engines.rehearsal import complete_layout, keep_existing_scripts

MAX_TOKENS = 32
HELD_OUT = 4
"""Prompts that evaluate answers."""
PROMPT = 256
"""Prompts of so many tokens must fit, however many samples share a row."""


def workers(job: Job, available_bytes: int, processors: int) -> int:
    """Return as many workers as data_parallel, memory and processors allow; 0 if the fewest do not fit."""
    fewest = fewest_workers(job.engine)
    most = min(max(job.layout.train.data_parallel, fewest), max(processors, fewest))
    fitting = min(most, available_bytes // worker_bytes(job))
    return fitting if fitting >= fewest else 0


def fewest_workers(engine: MindrlhfEngine) -> int:
    """Return the workers that a rehearsal needs.

    Without vLLM the completions of a prompt differ only between replicas: each has one seed.
    """
    return 1 if engine.use_vllm else 2


def worker_bytes(job: Job) -> int:
    """Estimate the memory of one worker: MindSpore, and logits of complete rows in float32 several times.

    Measured with a vocabulary of 152,064: 8.6 GiB with one row at once, 11.4 with two for the reference.
    """
    rows = max(6 * job.engine.batch_size, 4 * _reference_rows(job.engine))
    tokens = min(job.rollout.max_tokens, MAX_TOKENS)
    pack_num = job.engine.pack_num
    length = _row(pack_num, _prompt(job.tokenize.max_prompt_length, tokens, pack_num), tokens)
    return int(2.2 * 2**30) + rows * length * job.model.vocab_size * 4


def _reference_rows(engine: MindrlhfEngine) -> int:
    """Return ref_model_batch_size of a rehearsal: one where a second worker needs the memory."""
    return engine.ref_model_batch_size if fewest_workers(engine) == 1 else 1


def shrink(config: dict[str, Any], workers: int, model: Path, script: Path) -> dict[str, Any]:
    """Return the plain configuration of the rehearsal of a plain configuration."""
    small = copy.deepcopy(config)
    small["model"] |= small_shape(config["model"], str(model))
    small["layout"] = complete_layout(config["layout"], workers)
    small["cards"] = workers
    engine, train, rollout = small["engine"], small["train"], small["rollout"]
    engine["env"] = shim.environment(script, engine["env"])
    keep_existing_scripts(engine)
    engine |= {"epochs": 1, "msadapter_home": None, "sft": "off", "max_model_len": None}
    if not engine["use_vllm"]:
        engine["ref_model_batch_size"] = 1  # see _reference_rows
    train["checkpoint_every"] = 1
    tokenize, tokens = small["tokenize"], min(rollout["max_tokens"], MAX_TOKENS)
    tokenize["max_prompt_length"] = _prompt(tokenize["max_prompt_length"], tokens, engine["pack_num"])
    set_lengths(small, tokens)
    small["evaluate"] |= {"num_prompts": HELD_OUT, "sample_prompts": 0}
    small["dataset"] |= {"test_rows": HELD_OUT}
    return _least_samples(small, workers)


def set_lengths(small: dict[str, Any], tokens: int) -> None:
    """Completions of at most so many tokens, and rows in which as many samples fit as share one."""
    engine, rollout = small["engine"], small["rollout"]
    rollout["max_tokens"] = tokens
    rollout["min_tokens"] = min(rollout["min_tokens"], tokens)
    row = _row(engine["pack_num"], small["tokenize"]["max_prompt_length"], tokens)
    engine |= {"seq_length": row, "max_num_seqs": min(engine["max_num_seqs"], row)}


def _prompt(length: int, tokens: int, pack_num: int) -> int:
    """Longest prompt: the run's, or what the shortest rows leave, if that is enough for a question."""
    return min(length, max(PROMPT, SHORTEST_ROW // pack_num - tokens - 1))


def _row(pack_num: int, prompt: int, tokens: int) -> int:
    """pack_num of the longest samples, in whole 128 (job.py: divisible by every parallel degree in use)."""
    return max(SHORTEST_ROW, -(-pack_num * (prompt + tokens + 1) // 128) * 128)


def _least_samples(small: dict[str, Any], workers: int) -> dict[str, Any]:
    """Return the fewest completions per step that fill mindrlhf's batches, and rows for STEPS steps."""
    batch = small["engine"]["chunk_size"] * workers
    for prompts, generations in _sizes(small, batch):
        small["train"]["prompts_per_step"] = prompts
        small["rollout"]["num_generations"] = generations
        if not _batch_problems(small):
            break
    small["dataset"]["train_rows"] = STEPS * small["train"]["prompts_per_step"]
    return small


def _sizes(small: dict[str, Any], batch: int) -> Iterator[tuple[int, int]]:
    """(prompts, generations per prompt), fewest samples first; the run's own generations last resort."""
    group = small["rollout"]["num_generations"]
    prompts = [batch * rollouts for rollouts in range(1, 65)]
    pairs = itertools.product(prompts, range(min(2, group), group + 1))
    return iter(sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[0])))


def _batch_problems(small: dict[str, Any]) -> bool:
    names = [field.name for field in dataclasses.fields(Job)]
    job = Job.from_config({name: small[name] for name in names})
    return any(problem.path in _BATCHES for problem in rules.RULES.check(job))


_BATCHES = ("train.prompts_per_step", "engine.pack_num", "engine.batch_size", "engine.ref_model_batch_size")
