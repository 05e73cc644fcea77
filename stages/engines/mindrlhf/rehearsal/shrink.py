"""The recipe of a rehearsal: sizes become small, and nothing else changes."""

import itertools
from pathlib import Path
from typing import Any

from stages.engines.mindformers.rehearsal import shim
from stages.engines.mindrlhf.config import MindrlhfEngine
from stages.engines.mindrlhf.job import SHORTEST_ROW, Job
from stages.engines.mindrlhf.rules import problems
from stages.engines.rehearsal import STEPS
from stages.engines.rehearsal import shrink as shrink_model

MAX_TOKENS = 32
MAX_SEQUENCES = 128
"""Sequences that vLLM decodes at once: at most the tokens of the shortest row."""
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


def worker_bytes(small: Job) -> int:
    """Estimate the memory of one worker of a small recipe: MindSpore, and several float32 logits of each row.

    Measured with a vocabulary of 152,064: 8.6 GiB with one row at once, 11.4 with two for the reference.
    """
    rows = max(6 * small.engine.batch_size, 4 * small.engine.ref_model_batch_size)
    return int(2.2 * 2**30) + rows * small.seq_length * small.model.vocab_size * 4


def shrink(config: dict[str, Any], workers: int, model: Path, script: Path) -> dict[str, Any]:
    """Return the plain configuration of the rehearsal of a plain configuration."""
    small = shrink_model(config, model, workers)
    engine, rollout, tokenize = small["engine"], small["rollout"], small["tokenize"]
    engine["env"] = shim.environment(script, engine["env"])
    engine |= {"epochs": 1, "msadapter_home": None, "sft": "off", "max_model_len": None, "seq_length": None}
    engine["max_num_seqs"] = min(engine["max_num_seqs"], MAX_SEQUENCES)
    if not engine["use_vllm"]:
        engine["ref_model_batch_size"] = 1  # the second worker needs the memory
    small["train"]["checkpoint_every"] = 1
    rollout["max_tokens"] = tokens = min(rollout["max_tokens"], MAX_TOKENS)
    rollout["min_tokens"] = min(rollout["min_tokens"], tokens)
    # as much as the shortest rows leave to a sample, but at least PROMPT
    longest = max(PROMPT, SHORTEST_ROW // engine["pack_num"] - tokens - 1)
    tokenize["max_prompt_length"] = min(tokenize["max_prompt_length"], longest)
    _use_few_samples(small, workers)
    small["dataset"]["train_rows"] = STEPS * small["train"]["prompts_per_step"]
    return small


def _use_few_samples(small: dict[str, Any], workers: int) -> None:
    """Choose the fewest completions per step that fill mindrlhf's batches."""
    batch, group = small["engine"]["chunk_size"] * workers, small["rollout"]["num_generations"]
    sizes = itertools.product(range(batch, 65 * batch, batch), range(min(2, group), group + 1))
    for prompts, generations in sorted(sizes, key=lambda size: (size[0] * size[1], size[0])):
        small["train"]["prompts_per_step"] = prompts
        small["rollout"]["num_generations"] = generations
        found = problems(Job.from_config(small))
        if not any(problem.path in BATCH_RULES for problem in found):
            return
