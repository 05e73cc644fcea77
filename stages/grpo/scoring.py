"""Rewards of a step: worker 0 scores the completions of all workers, and sends the rewards to the others.

A function that ranks or normalises must see all completions, whatever the number of workers. If each worker
scored them all, a function that draws lots would give the replicas different rewards, and their weights would
silently diverge.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.errors import InputError
from stages.grpo.collectives import Gather
from stages.rewards.config import RewardConfig
from stages.rewards.score import RewardScores, score


def score_shared(
    config: RewardConfig, texts: Sequence[str], solutions: Sequence[str], lengths: NDArray[Any], rank: int,
    world: Gather, columns: Mapping[str, Sequence[Any]] | None = None,
) -> RewardScores:  # fmt: skip
    """Compute the rewards of B completions on worker 0; return them on every worker. All workers call this.

    `lengths`: tokens of each completion [B]; `columns`: see `score`; only worker 0's are used.
    """
    scores = of_worker_0(
        lambda: asdict(score(config, texts, solutions, lengths.tolist(), columns)), rank, world
    )
    return _from_plain(scores)


def of_worker_0(compute: Callable[[], Any], rank: int, world: Gather) -> Any:
    """Return on all workers the plain value that `compute` has on worker 0, which alone calls it.

    JSON preserves every float32.

    Raises:
        InputError: `compute` raised it on worker 0.
    """
    if world.size == 1:
        return compute()
    sent = b""
    if rank == 0:
        try:
            answer = {"value": compute()}
        except InputError as error:  # the other workers wait for the answer
            problem = error.problem
            answer = {"problem": [problem.path, problem.value, problem.rule, problem.remedy]}
        sent = json.dumps(answer, default=_plain).encode()
    size = int(world.arrays(np.array([len(sent)], np.int32))[0, 0])
    padded = np.frombuffer(sent.ljust(-(-size // 4) * 4), np.int32)  # a gather takes arrays of equal size
    answer = json.loads(world.arrays(padded)[0].tobytes())
    if "problem" in answer:
        raise InputError(*answer["problem"])
    return answer["value"]


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else str(value)


def _from_plain(values: dict[str, Any]) -> RewardScores:
    parts = {name: np.array(column, np.float32) for name, column in values["parts"].items()}
    return RewardScores(**{**values, "total": np.array(values["total"], np.float32), "parts": parts})


def join_scores(scores: Sequence[RewardScores]) -> RewardScores:
    """Concatenate the rewards of several sets of completions."""
    first = scores[0]
    return RewardScores(
        {name: np.concatenate([part.parts[name] for part in scores]) for name in first.parts},
        {name: sum(part.failures[name] for part in scores) for name in first.failures},
        {name: sum(part.faults[name] for part in scores) for name in first.faults},
        {name: message for part in reversed(scores) for name, message in part.messages.items()},
        {name: sum(part.late[name] for part in scores) for name in first.late},
        {name: message for part in reversed(scores) for name, message in part.single.items()},
        {name: sum(part.usage.get(name, 0.0) for part in scores) for name in _names_of_usage(scores)},
        total=np.concatenate([part.total for part in scores]),
    )


def _names_of_usage(scores: Sequence[RewardScores]) -> dict[str, None]:
    return dict.fromkeys(name for part in scores for name in part.usage)
