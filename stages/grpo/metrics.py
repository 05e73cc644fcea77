"""Metrics of a step, and JSON lines that can be continued after a kill."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stages.base.errors import InputError
from stages.base.files import parse_json, read_bytes

SCHEMA = {
    "step": "number of the step, from 1",
    "time_s": "when it ended, seconds since 1970",
    "reward": "weighted sum of the reward functions, mean over all sampled completions",
    "reward_std": "its standard deviation over them",
    "reward/*": "mean of one reward function, unweighted",
    "reward_std/*": "its standard deviation",
    **{
        f"{name}_stderr": "standard error of that mean, over the step's groups"
        for name in ("reward", "accuracy", "completion_length", "kl", "entropy")
    },
    "reward_stderr/*": "the same of one reward function",
    "reward_failures": "rewards that could not be computed and counted 0",
    "judge_requests": "requests to the model of the reward judge, repetitions included",
    "judge_cached": "completions whose score was known from an equal request",
    "judge_prompt_tokens": "tokens of the requests",
    "judge_completion_tokens": "tokens of the answers",
    "judge_cost": "their price, with reward.judge.prompt_price and completion_price",
    "accuracy": "share of sampled completions that are right (with the reward number or accuracy)",
    "zero_variance_share": "share of sampled groups whose rewards are all equal, which give no gradient",
    "sampled_groups": "prompts sampled for this step, dynamic sampling's further rounds included",
    "completion_length": "tokens, end token included, mean",
    "completion_length_max": "tokens of the longest completion",
    "completion_cut_share": "share of completions cut at rollout.max_tokens",
    "loss": "of the step's last update",
    "skipped_completions": "completions that the updates did not compute, because the loss does not depend on"
    " them (advantage 0); only with train.beta=0",
    "reference_completions": "completions that a reference computed: 0, only with train.beta=0",
    "kl": "KL to the reference per token at the last update, by train.kl_estimator, nats; absent if"
    " train.beta=0",
    "entropy": "of the next token, mean over tokens, nats, at the step's last update; skipped completions"
    " are left out",
    "clip_low_fraction": "share of tokens that the last update clips below, at ratio 1 - epsilon_low",
    "clip_high_fraction": "share of tokens that the last update clips above, at ratio 1 + epsilon_high or"
    " clip_ratio_c",
    "clip_fraction": "both together",
    "grad_norm": "of all parameters, before clipping, in the last update",
    "lr": "learning rate of the step's last update",
    "reshard_s": "carrying the policy over to the generating layout",
    "rollout_s": "generating",
    "reward_s": "decoding texts and scoring them",
    "reference_s": "log-probabilities of the reference and of the policy that sampled",
    "train_s": "gradients and updates",
    "step_s": "the whole step",
    "tokens_per_s": "sampled tokens over step_s",
    "rollout_tokens_per_s": "sampled tokens over rollout_s",
    "train_tokens_per_s": "tokens trained on, once per update, over train_s",
    "completions_per_s": "sampled completions over step_s",
    "peak_memory_gib": "most memory that worker 0 has held so far (an accelerator: on it)",
    "validation_accuracy": "greedy, on held-out prompts, after the step (every validate_every steps)",
    "validation_s": "how long that check took; not part of step_s",
}
"""Every key of the local trainer's metrics.jsonl and what it means; a star stands for a reward function's
name. Other engines write those that their logs contain, and those of OUTSIDE."""
OUTSIDE = {
    "reward_max": "largest reward of the step",
    "reward_min": "smallest reward of the step",
    "prompt_length": "tokens of the prompts, mean",
    "completion_characters": "characters of the completions, mean, where tokens are unknown",
    "overflow": "share of the step's updates that were left out because gradients overflowed",
    "updates": "updates of the step",
    "staleness": "updates between the weights that generated a token and those that train on it, mean",
    "staleness_max": "the largest of them",
    "staleness_share/*": "share of the tokens for which it is the number after the stroke",
    "wait_share": "share of the step in which training waits for completions",
    "turns": "messages of a conversation: prompt, answers, and what functions return, mean (rollout.agent)",
    "turns_max": "the largest number of them",
    "tool_calls": "calls of functions per completion, of the prompts that were sent in this step",
    "tool_failed_share": "share of these calls without an answer: unknown name, malformed arguments, or an"
    " exception of the function",
    "rollout_logprob_diff": "how much the mean log-probability of a completion differs between sampling and "
    "training, mean of the absolute values, nats",
    "rollout_prob_diff_max": "largest such difference of a token's probability",
    "rollout_kl": "KL of the sampled distribution from the trained policy per token, k3 estimate, nats",
    "rollout_perplexity_ratio": "perplexity of completions by the trained policy over that by the rollout",
    "correction_weight": "mean weight of rollout.correction after truncation",
    "correction_rejected_share": "share of tokens that rollout.correction=mis leaves out",
}
"""Metrics that only other engines' logs contain."""


class Clock:
    """Seconds spent in each phase of a step, and since its start."""

    def __init__(self) -> None:
        self.began, self.phases = time.monotonic(), defaultdict[str, float](float)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Count what runs inside towards `phase`."""
        began = time.monotonic()
        yield
        self.phases[phase] += time.monotonic() - began

    def total(self) -> float:
        """Return the seconds since the start."""
        return time.monotonic() - self.began


class StepLog:
    """A JSONL file whose rows carry `step`; rows come in the order of steps."""

    def __init__(self, path: Path, last_step: int) -> None:
        """Open or create the file, dropping what a killed attempt wrote after `last_step` (0: a new run)."""
        self.rows = [row for row in read_rows(path) if row["step"] <= last_step]
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}")  # on a full disk the earlier rows stay where they are
        temporary.write_text("".join(map(_line, self.rows)), encoding="utf-8")
        temporary.replace(path)
        self.path = path

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(map(_line, rows))


def _line(row: Mapping[str, Any]) -> str:
    """Return a row as its line, the same whenever it is written."""
    return json.dumps(row, ensure_ascii=False) + "\n"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Read the rows of a JSONL file; none if it does not exist.

    An incomplete last line is left out, and malformed lines, with a warning: a machine that lost its power
    leaves zeros.
    """
    if not path.exists():
        return []
    try:
        content = read_bytes(path)
    except OSError as error:
        raise InputError(path, None, f"can't be read: {error.strerror}", "move it away") from error
    rows, faults = list[dict[str, Any]](), list[str]()
    for number, line in enumerate(content.split(b"\n")[:-1], start=1):
        try:
            row = parse_json(line) if line else None
            if row is not None and not (isinstance(row, dict) and type(row.get("step")) is int):
                raise ValueError("a row must be an object with a step")
            rows += [] if row is None else [row]
        except ValueError as error:
            faults.append(f"line {number} is malformed and left out ({error})")
    if faults:
        more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
        print(f"warning: {path}: {faults[0]}{more}", file=sys.stderr, flush=True)
    return rows


def peak_memory_gib() -> float:
    """Return the peak memory of this process on its device in GiB (Linux reports KiB)."""
    import mindspore as ms

    if ms.get_context("device_target") != "CPU":
        return float(ms.runtime.max_memory_allocated()) / 2**30
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
