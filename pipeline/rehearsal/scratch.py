"""The product's own stages, in a store that is thrown away."""

import functools
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launch.errors import ProcessFailed
from launch.process import child, job
from pipeline.config import rules
from pipeline.config.load import Config
from pipeline.errors import ConfigError, StageFailed
from pipeline.fingerprint import DIGESTS, DigestCache
from pipeline.plan.graph import Plan, StageSpec, plan
from pipeline.plan.process import write_spec
from pipeline.rehearsal.machine import tokenizer_directory
from pipeline.run.build import build
from pipeline.run.progress import count
from pipeline.store.store import Store
from stages.base.reader import read
from stages.fetch import tokenizer_files
from stages.fetch.builtin import write_model
from stages.models.config import ModelConfig

LOCAL = {"name": "local", "master_addr": "127.0.0.1", "master_port": None, "hosts": (), "hosts_file": None}
"""A rehearsal takes this machine only, whatever launcher the run has."""


class Scratch:
    """A store, and what is told while it fills."""

    def __init__(self, root: Path, tell: Callable[[str], None]) -> None:
        self.store = Store(root / "store")
        self.tell = tell
        self.began = time.time()
        self.store.open()

    def plan(self, values: dict[str, Any]) -> Plan:
        """The plan of a whole plain configuration, as Config.plain() gives it.

        Raises:
            ConfigError: it breaks rules.
        """
        launcher = {**values["launcher"], **LOCAL}
        config = read(Config, {**values, "store": str(self.store.root), "launcher": launcher})
        problems = list(rules.check(config))
        if problems:
            raise ConfigError(problems)
        return plan(config, DigestCache(self.store.root / DIGESTS).digest)

    def write_model(self, run: Plan, small: dict[str, Any]) -> None:
        """Write the random model of a small configuration, with the run's own tokenizer and vocabulary.

        Raises:
            InputError: that is no Qwen2 tokenizer, or one with more ids than the vocabulary.
        """
        model, tokenizer = read(ModelConfig, small["model"], "model"), tokenizer_directory(run)
        assert tokenizer is not None and model.path is not None  # refusals; shrink
        output = Path(model.path)
        output.mkdir(parents=True)
        tokenizer_files.take(tokenizer, output)
        tokenizer_files.check_fit(output, model.vocab_size)
        write_model(model, tokenizer_files.ending_ids(output), run.config.seed, output)

    def build(self, plan: Plan, stage: str) -> Path:
        """One stage, unless it is there; returns the artifact.

        Raises:
            StageFailed: it ended badly.
        """
        spec = plan.spec(stage)
        build(spec, self.store, plan.config.launcher, Shown(self.tell), self.began)
        return self.store.path(spec.key)

    def run_entry(self, plan: Plan, entry: str, inputs: Mapping[str, str], output: Path) -> None:
        """A function of stages.__main__ that is no stage of the graph, in a process of its own.

        Raises:
            StageFailed: it ended badly.
        """
        output.mkdir()
        paths = {name: self.store.path(plan.spec(stage).key) for name, stage in inputs.items()}
        command = write_spec(output, entry, plan.config.plain(), paths)
        try:
            job.run(command, workers=1, job=str(output), log_dir=output, launcher=plan.config.launcher)
        except ProcessFailed as error:
            raise StageFailed(entry, f"exit code {error.exit_code}", error.log, error.tail) from error

    def build_until(self, plan: Plan, stage: str) -> None:
        """Every stage before `stage`, in order."""
        for spec in plan.specs:
            if spec.name == stage:
                return
            self.build(plan, spec.name)

    def kill(self, plan: Plan, stage: str, when: Callable[[Path], bool]) -> bool:
        """Start a stage and kill all its processes (SIGKILL) as soon as `when` says so of its work directory.

        Returns:
            Whether it was killed; False: it had finished before.

        Raises:
            StageFailed: it ended badly by itself.
        """
        spec = plan.spec(stage)
        killer = Killer(self.tell, self.store.work_dir(spec.key), when)
        try:
            build(spec, self.store, plan.config.launcher, killer, self.began)
        except StageFailed:
            if not killer.has_killed:
                raise
        return killer.has_killed

    def work(self, spec: StageSpec) -> Path:
        """A stage's work directory, which outlives a kill."""
        return self.store.work_dir(spec.key)


class Shown:
    """Tells how a stage goes on, whenever that changes."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell, self.last = tell, ""

    def wait(self, stage: str) -> None:
        """Nobody else builds here."""

    def start(self, stage: str) -> None:
        """It has begun."""
        self.tell(f"{stage} …")

    def warn(self, stage: str, text: str) -> None:
        """It goes on, but somebody should know."""
        self.tell(f"{stage}: warning: {text}")

    def progress(self, stage: str, line: dict[str, Any] | None) -> None:
        """The latest progress line."""
        told = "" if line is None else f"{stage}: {count(line)} {line.get('message', '')}".rstrip()
        if told != self.last:
            self.last = told
            self.tell(told)


class Killer(Shown):
    """Kills when a condition holds."""

    def __init__(self, tell: Callable[[str], None], work: Path, when: Callable[[Path], bool]) -> None:
        super().__init__(tell)
        self.when = functools.partial(when, work)
        self.job, self.has_killed = str(work), False

    def progress(self, stage: str, line: dict[str, Any] | None) -> None:
        """Ten times a second."""
        super().progress(stage, line)
        if not self.has_killed and self.when():
            self.has_killed = True
            self.tell(f"{stage}: killed")
            child.end_job(self.job, grace_s=0.0)
