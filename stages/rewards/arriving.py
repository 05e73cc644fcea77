"""Rewards of completions that arrive one at a time, as verl and AReaL ask for them.

A user's function gets the completions that arrived while its call before was running, at most MOST of them.
They are any completions of a step, not the groups of its prompts. Only those programs' interpreters use this,
from a copy (stages/engines/scoring.py).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from stages.base.errors import InputError
from stages.rewards.config import BUILTIN, RewardConfig, comparing
from stages.rewards.process import Failure
from stages.rewards.score import columns_of, outcomes_of, prepare, score_each, weighted

MOST = 64
"""Completions of one call: reward.timeout_s counts for all of them."""
THREADS = 8


@dataclass(frozen=True)
class Arrived:
    """A completion with what its reward depends on."""

    prompt: str
    completion: str
    solution: str
    tokens: int
    """Length of the completion, its end token included."""
    row: int
    """Row of the training data."""
    step: int


Rewarded = tuple[float, dict[str, float]]
"""The weighted reward of a completion, and the value of each function."""
Waiting = tuple[Arrived, "asyncio.Future[Rewarded]"]
"""A completion, and what its reward is given to."""


class Arriving:
    """Scores completions of one event loop; what fails is reported in a file, and counts 0."""

    def __init__(self, config: RewardConfig, report: str, usage: str, columns: str) -> None:
        """Import the functions.

        Args:
            config: functions and weights.
            report: file that gets a line for each completion that a function fails for.
            usage: file that gets a line for each completion that a service is asked about.
            columns: file with the columns of each training row; only read if a function accepts columns.

        Raises:
            InputError: a function cannot be imported.
        """
        self._config, self._report, self._usage = config, report, usage
        names = [each.names for each in prepare(config)]
        self._takes_prompts = any(each is None or "prompts" in each for each in names)
        takes_columns = any(each is None or each - {"prompts"} for each in names)
        self._rows = _read_lines(columns) if takes_columns else []
        asked = [config.judge.concurrency] if config.judge else []
        asked += [config.code.workers] if config.code else []
        self._pool = ThreadPoolExecutor(max([THREADS, *asked]))
        users = [name for name in config.functions if name not in BUILTIN]
        # a judge and programs are waited for in threads, each on its own
        self._gathers = bool(users) and not {"judge", "code"} & {*config.functions}
        self._waiting: list[Waiting] = []
        self._work: asyncio.Task[None] | None = None
        self._told: set[str] = set()

    async def reward(self, arrived: Arrived) -> Rewarded:
        """Return the reward of a completion; the event loop goes on with generation meanwhile."""
        loop = asyncio.get_running_loop()
        if not self._gathers:
            return (await loop.run_in_executor(self._pool, self._score, [arrived]))[0]
        future: asyncio.Future[Rewarded] = loop.create_future()
        self._waiting.append((arrived, future))
        if self._work is None or self._work.done():
            self._work = loop.create_task(self._score_waiting())
        return await future

    async def is_right(self, arrived: Arrived) -> bool:
        """Return whether a completion is right, as evaluate counts it."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._compare, arrived)

    async def _score_waiting(self) -> None:
        await asyncio.sleep(0)  # what arrives at the same time is one batch
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
            try:
                rewards = await loop.run_in_executor(self._pool, self._score, [each for each, _ in batch])
            except BaseException as error:  # for those who wait: nobody else looks at this task
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                if not isinstance(error, Exception):  # the event loop ends
                    raise
            else:
                for (_, future), reward in zip(batch, rewards, strict=True):
                    if not future.done():  # whoever waited was cancelled
                        future.set_result(reward)

    def _score(self, batch: Sequence[Arrived]) -> list[Rewarded]:
        completions, solutions, tokens, named = self._arguments(batch)
        try:
            outcomes = outcomes_of(self._config, completions, solutions, tokens, named)
            scored = columns_of(outcomes)
            parts = {name: np.array(values, np.float32) for name, values in scored.parts.items()}
            totals = weighted(self._config, parts)
        except InputError as error:  # the program would catch it, and go on with 0
            name = str(error.problem.value or error.problem.path)
            for each in batch:
                self._append(self._report, step=each.step, faults={name: error.problem.rule}, late=[])
            return [(0.0, {})] * len(batch)
        if scored.usage:  # of one completion: a judge is never asked about several at once
            self._append(self._usage, step=batch[0].step, usage=scored.usage)
        for name, message in scored.single.items():
            if name not in self._told:
                self._told.add(name)
                self._append(self._report, step=batch[0].step, faults={}, single={name: message})
        for i, each in enumerate(batch):
            failed = {name: outcome for name in outcomes if (outcome := _fault(outcomes[name].outcomes[i]))}
            if failed:
                faults = {name: failure.message for name, failure in failed.items()}
                late = [name for name, failure in failed.items() if failure.is_late]
                self._append(self._report, step=each.step, faults=faults, late=late)
        return [
            (float(total), {name: float(values[i]) for name, values in parts.items()})
            for i, total in enumerate(totals)
        ]

    def _compare(self, arrived: Arrived) -> bool:
        completions, solutions, tokens, named = self._arguments([arrived])
        alone = comparing(self._config)
        scored = score_each(alone, completions, solutions, tokens, named)
        return bool(scored.parts[alone.functions[0]][0] > 0)

    def _arguments(
        self, batch: Sequence[Arrived]
    ) -> tuple[list[str], list[str], list[int], dict[str, list[Any]]]:
        """Return completions, solutions, lengths, and the further arguments by name."""
        named: dict[str, list[Any]] = {}
        if self._rows:
            rows = [self._rows[each.row] for each in batch]
            named = {name: [row.get(name) for row in rows] for name in rows[0]}
        if self._takes_prompts:
            named["prompts"] = [each.prompt for each in batch]
        return (
            [each.completion for each in batch],
            [each.solution for each in batch],
            [each.tokens for each in batch],
            named,
        )

    def _append(self, file: str, **line: Any) -> None:
        """Add a line of JSON to a file, which stays absent without any."""
        with open(file, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")


def _fault(outcome: float | Failure) -> Failure | None:
    """Return a failure that is the function's fault."""
    return outcome if isinstance(outcome, Failure) and not outcome.is_unusable else None


def _read_lines(file: str) -> list[Mapping[str, Any]]:
    with open(file, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
