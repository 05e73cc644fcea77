"""One run: a plan, the store that it fills, and what is told about it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from launch import environment
from launch.errors import EnvironmentProblem
from pipeline import history, summary
from pipeline.build import build
from pipeline.config import load
from pipeline.errors import REPORTED
from pipeline.fingerprint import DigestCache
from pipeline.graph import Plan, plan
from pipeline.progress import Display
from pipeline.store import Store


def prepare_plan(overrides: Sequence[str], config_dir: Path | None = None) -> tuple[Plan, Store]:
    """Compose, check and plan; touches nothing but the digest cache.

    Raises:
        ConfigError: the configuration is invalid.
    """
    config = load(overrides, config_dir)
    store = Store(Path(config.store))
    cache = DigestCache(store.root / ".digests.json")
    return plan(config, cache.digest), store


@dataclass
class Run:
    """A run in this process."""

    plan: Plan
    store: Store
    overrides: tuple[str, ...]
    id: str = field(default_factory=history.new_run_id)
    display: Display = field(init=False)

    def __post_init__(self) -> None:
        names = [spec.name for spec in self.plan.specs]
        cached = [name for name in names if self.is_complete(name)]
        self.display = Display(names, cached)
        self._pending = len(names) - len(cached)

    @classmethod
    def prepare(cls, overrides: Sequence[str], config_dir: Path | None = None) -> Run:
        """Plan a run and check that this machine can run it.

        Raises:
            ConfigError: the configuration is invalid.
            EnvironmentProblem: a package is missing or of a version that is known to break.
            StoreError: the store cannot be written.
        """
        planned, store = prepare_plan(overrides, config_dir)
        run = cls(planned, store, tuple(overrides))
        if run._pending:
            problems = environment.problems()
            if problems:
                raise EnvironmentProblem("\n".join(problems))
        store.open()
        history.record(store.root, run.id, "started", overrides=list(overrides), pending=run._pending)
        return run

    def is_complete(self, stage: str) -> bool:
        """Whether the stage's artifact is whole."""
        return self.store.problem(self.plan.spec(stage).key) is None

    def build(self, stage: str) -> None:
        """Run one stage, and tell its progress and its end."""
        self.display.start(stage)
        try:
            build(
                self.plan.spec(stage),
                self.store,
                self.plan.config.launcher,
                lambda line: self.display.progress(stage, line),
            )
        except REPORTED as error:
            self._failed(stage, str(error))
            raise
        except KeyboardInterrupt:
            self._failed(
                stage, "interrupted; finished stages and checkpoints are kept: type the same command to go on"
            )
            raise
        self.display.finish(stage, "done")

    def _failed(self, stage: str, message: str) -> None:
        self.display.finish(stage, "failed")
        history.record(self.store.root, self.id, "failed", stage=stage, message=message.splitlines()[0])
        print(f"error: {message}", file=sys.stderr, flush=True)

    def report(self) -> None:
        """Print the summary and the result line, and remember the result."""
        summary.show(self.plan, self.store, self.display.states, Console(highlight=False))
        history.record(
            self.store.root,
            self.id,
            "finished",
            result=summary.results(self.plan, self.store),
            artifacts={spec.name: str(spec.key) for spec in self.plan.specs},
        )
        print(summary.result_line(self.plan, self.store, self.id), flush=True)
