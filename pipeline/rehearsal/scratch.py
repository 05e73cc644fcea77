"""grpoflow's stages in a temporary store."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from launch.errors import ProcessFailed
from launch.process import job
from launch.process.tree import end_job
from pipeline.config import rules
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, StageFailed
from pipeline.fingerprint import cached_digest
from pipeline.plan.graph import Plan, plan
from pipeline.plan.process import write_spec
from pipeline.rehearsal.machine import tokenizer_directory
from pipeline.run.build import build
from pipeline.run.progress import Display
from pipeline.store.store import Store
from stages.base.reader import read
from stages.engines.rehearsal import Proof
from stages.fetch import tokenizer_files
from stages.fetch.builtin import write_model
from stages.models.config import ModelConfig

T = TypeVar("T")
LABEL = "rehearsal: "
LOCAL = {"name": "local", "master_addr": "127.0.0.1", "master_port": None, "hosts": ()}
"""Launcher settings of a rehearsal, which runs on this machine only."""


class Scratch:
    """Directory of a rehearsal, with a store in which stages are built and their progress is shown."""

    def __init__(self, root: Path) -> None:
        self.root, self.store, self.display = root, Store(root / "store"), Display(LABEL)
        self.store.open()

    def plan(self, values: dict[str, Any]) -> Plan:
        """Return the plan of a complete plain configuration (Config.plain()).

        Raises:
            ConfigError: the configuration breaks rules.
        """
        launcher = {**values["launcher"], **LOCAL, "cards_per_node": values["cards"]}
        config = read(Config, {**values, "store": str(self.store.root), "launcher": launcher})
        if problems := list(rules.check(config)):
            raise ConfigError(problems)
        return plan(config, cached_digest)

    def write_model(self, run: Plan, small: dict[str, Any]) -> None:
        """Write a random model of a small configuration with the run's tokenizer and vocabulary.

        Raises:
            InputError: the tokenizer is not supported, or has more ids than the vocabulary.
        """
        model, tokenizer = read(ModelConfig, small["model"], "model"), tokenizer_directory(run)
        assert tokenizer is not None and model.path is not None  # refusals; shrink
        output = Path(model.path)
        output.mkdir(parents=True)
        tokenizer_files.take(tokenizer, output)
        tokenizer_files.check_fit(output, model.vocab_size)
        write_model(model, tokenizer_files.ending_ids(output), run.config.seed, output)

    def build(self, plan: Plan, stage: str, **inputs: str) -> Path:
        """Build a stage unless its artifact exists; return its path. Raise StageFailed if it fails.

        `inputs` maps names of inputs to stages whose artifacts replace those in the plan.
        """
        spec = plan.spec(stage)
        replaced = {name: plan.spec(source).key for name, source in inputs.items()}
        spec = replace(spec, inputs={**spec.inputs, **replaced})
        build(spec, self.store, plan.config.launcher, self.display)
        return self.store.path(spec.key)

    def build_until(self, plan: Plan, stage: str) -> None:
        """Build all stages before `stage`, in order."""
        names = [spec.name for spec in plan.specs]
        for name in names[: names.index(stage)]:
            self.build(plan, name)

    def data_proof(self, plan: Plan, rows: int) -> Proof:
        """Return the proof that the tokenize stage has read the run's dataset."""
        dataset = plan.config.dataset
        source = dataset.path or dataset.name
        seen = f"{rows} prompts of {source} with the real tokenizer and template"
        return Proof("data read", "proven", seen)

    def run_entry(self, plan: Plan, entry: str, inputs: Mapping[str, str], output: Path) -> None:
        """Run a function of stages.__main__ outside the graph in a process; raise StageFailed if it fails."""
        output.mkdir()
        paths = {name: self.store.path(plan.spec(stage).key) for name, stage in inputs.items()}
        command = write_spec(output, entry, plan.config.plain(), paths)
        try:
            job.run(command, workers=1, job=str(output), log_dir=output, launcher=plan.config.launcher)
        except ProcessFailed as error:
            raise StageFailed(entry, f"exit code {error.exit_code}", error.log, error.tail) from error

    def kill(self, plan: Plan, stage: str, find: Callable[[Path], T | None]) -> T | None:
        """Start a stage and kill its processes (SIGKILL) as soon as `find` returns a result; return that.

        `find` gets the stage's work directory, ten times a second. Return None if the stage ended first.
        Raise StageFailed if it failed by itself.
        """
        killer = Killer(self.store.work_dir(plan.spec(stage).key), find)
        try:
            build(plan.spec(stage), self.store, plan.config.launcher, killer)
        except StageFailed:
            if killer.result is None:
                raise
        return killer.result


class Killer(Display, Generic[T]):
    """Display that kills the stage as soon as `find` returns a result for its work directory."""

    def __init__(self, work: Path, find: Callable[[Path], T | None]) -> None:
        super().__init__(LABEL)
        self.work, self.find = work, find
        self.result: T | None = None

    def progress(self, stage: str, line: dict[str, Any] | None) -> None:
        """Show progress and look for a result; called ten times a second."""
        super().progress(stage, line)
        if self.result is None and (result := self.find(self.work)) is not None:
            self.result = result
            self.print_line(f"{stage}: killed")
            end_job(str(self.work), grace_s=0.0)
