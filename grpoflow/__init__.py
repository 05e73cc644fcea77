"""Python interface: plan and start runs, and read what they left in a store.

Example:
    import grpoflow

    run = grpoflow.run(["train.beta=0.02", "store=store"])
    run.metrics()[-1]["reward"]
    grpoflow.open("store").run("last").model_dir
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

sys.path.insert(0, str(Path(__file__).parents[1]))
import pipeline  # noqa: F401 - from there on no module of the user's replaces grpoflow's

del sys.path[0]
from pipeline.errors import ConfigError, Exit, StoreError  # noqa: E402
from pipeline.store import history  # noqa: E402
from stages.base.files import parse_json  # noqa: E402
from stages.own_packages import START  # noqa: E402

if TYPE_CHECKING:
    import pandas

__all__ = ["Error", "Run", "Store", "open", "plan", "run"]


class Error(Exception):
    """A failed run, an invalid configuration, or a file that a store does not have."""


class Run:
    """A recorded run of a store."""

    def __init__(self, store: Path, record: history.Record) -> None:
        """Read nothing yet; `record` comes from the store's history."""
        self._store, self._record = store, record

    def __repr__(self) -> str:
        return f"<grpoflow.Run {self.id} {self.state}>"

    @property
    def id(self) -> str:
        """The run's id."""
        return self._record.id

    @property
    def state(self) -> str:
        """State at the look-up: running, finished, failed, interrupted, stopped early, died."""
        return self._record.state

    @property
    def overrides(self) -> list[str]:
        """Overrides that the run was started with."""
        return list(self._record.overrides)

    @property
    def config(self) -> dict[str, Any]:
        """The complete configuration: section -> key -> value."""
        return self._record.config

    @property
    def result(self) -> dict[str, Any]:
        """The result of evaluate, for example `gain`; empty if the run has none."""
        return self._record.result

    @property
    def model_dir(self) -> Path:
        """The trained model as a Hugging Face directory.

        Raises:
            Error: the run has not exported a model, or it was removed from the store.
        """
        return self._artifact("export")

    @property
    def report(self) -> Path:
        """The report's HTML page.

        Raises:
            Error: the run has no report, or it was removed from the store.
        """
        return self._artifact("report") / "index.html"

    @overload
    def metrics(self, frame: Literal[False] = False) -> list[dict[str, Any]]: ...

    @overload
    def metrics(self, frame: Literal[True]) -> pandas.DataFrame: ...

    def metrics(self, frame: bool = False) -> list[dict[str, Any]] | pandas.DataFrame:
        """Return the metrics of the grpo stage, one row per step.

        Args:
            frame: return a pandas.DataFrame, which needs pandas.

        Raises:
            Error: the grpo stage has not finished, or its artifact was removed from the store.
            ImportError: `frame` is set and pandas is not installed.
        """
        rows = list(_rows(self._artifact("grpo") / "metrics.jsonl"))
        if not frame:
            return rows
        import pandas

        return pandas.DataFrame(rows)

    def samples(self, step: int) -> list[dict[str, Any]]:
        """Return the logged completions of a step with their rewards; empty if none were logged.

        Raises:
            Error: the grpo stage has not finished, or its artifact was removed from the store.
        """
        file = self._artifact("grpo") / "completions.jsonl"
        return [row for row in _rows(file) if row["step"] == step] if file.exists() else []

    def _artifact(self, stage: str) -> Path:
        name = self._record.artifacts.get(stage)
        if name is None:
            raise Error(f"run {self.id} has no stage {stage}")
        path = self._store / name
        if not path.is_dir():
            rule = "has not finished, was removed from the store, or is only on the remote"
            raise Error(f"{path}: {stage} of run {self.id} {rule} (grpoflow pull {self.id})")
        return path


class Store:
    """A store of artifacts and the runs that produced them."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open the store at `path`, which may not exist yet.

        Raises:
            Error: `path` is a URL.
        """
        if "://" in os.fspath(path):
            raise Error("a store is a directory of this machine, not a URL; see remote=URL")
        self.path = Path(path)

    def runs(self) -> list[Run]:
        """Return all runs, oldest first.

        Raises:
            Error: the history cannot be read.
        """
        try:
            return [Run(self.path, record) for record in history.runs(self.path).values()]
        except StoreError as error:
            raise Error(str(error)) from error

    def run(self, selector: str = "last") -> Run:
        """Return one run.

        Args:
            selector: an id, its unique beginning, a name, or `last`.

        Raises:
            Error: no run or several runs match.
        """
        try:
            return Run(self.path, history.find(self.path, selector))
        except (ConfigError, StoreError) as error:
            raise Error(str(error)) from error


def open(path: str | os.PathLike[str] | None = None) -> Store:
    """Open a store; by default $GRPOFLOW_STORE, or ./store."""
    return Store(path or os.environ.get("GRPOFLOW_STORE") or "store")


def plan(
    overrides: str | Sequence[str] = (),
    *,
    until: str | None = None,
    only: str | Sequence[str] = (),
    force: str | Sequence[str] = (),
) -> dict[str, Any]:
    """Return what a run would do: the data of `grpoflow plan --json`.

    Args:
        overrides: Hydra overrides, for example `["train.beta=0.02", "store=DIR"]`; text is one override.
        until: plan the stages up to this one.
        only: plan these stages, or this one, and everything upstream of them.
        force: rebuild these stages and everything downstream.

    Raises:
        Error: the configuration is invalid; the message lists all problems.
    """
    done = _grpoflow(
        "plan",
        "--json",
        *_options(until, only, force),
        *_texts(overrides, "overrides"),
        stderr=subprocess.PIPE,
    )
    if done.returncode not in (Exit.DONE, Exit.PENDING):
        raise Error(done.stderr.strip())
    planned: dict[str, Any] = json.loads(done.stdout)
    return planned


def run(
    overrides: str | Sequence[str] = (),
    *,
    until: str | None = None,
    only: str | Sequence[str] = (),
    force: str | Sequence[str] = (),
) -> Run:
    """Run the stages that are not cached, and return the run; progress appears on stderr.

    The arguments are those of `plan`.

    Raises:
        Error: the configuration is invalid or a stage failed; stderr has the reason.
    """
    done = _grpoflow(
        "run", "--json", *_options(until, only, force), *_texts(overrides, "overrides"), stderr=None
    )
    ended: dict[str, Any] = json.loads(done.stdout) if done.stdout else {}
    if done.returncode != Exit.DONE:
        reason = f": {ended['error']}" if "error" in ended else ""
        raise Error(f"grpoflow run ended with exit code {done.returncode}{reason}")
    return Store(ended["store"]).run(ended["run"])


def _texts(values: str | Sequence[str], argument: str) -> list[str]:
    """Return an argument's texts; one text alone is a list of one."""
    texts = [values] if isinstance(values, str) else list(values)
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise Error(f"{argument}: {wrong[0]!r} must be text")
    if unassigned := [text for text in texts if argument == "overrides" and text.startswith("--")]:
        raise Error(f"overrides: {unassigned[0]!r} must be KEY=VALUE; options are arguments of this function")
    return texts


def _options(until: str | None, only: str | Sequence[str], force: str | Sequence[str]) -> list[str]:
    values = {
        "until": until,
        "only": ",".join(_texts(only, "only")),
        "force": ",".join(_texts(force, "force")),
    }
    return [f"--{option}={stages}" for option, stages in values.items() if stages]


def _grpoflow(*arguments: str, stderr: int | None) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, because it installs signal handlers and may end its process."""
    command = [sys.executable, START, "pipeline.cli", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        output, errors = process.communicate()
    except KeyboardInterrupt:  # the process got the signal, too: it ends its stage and records that
        process.communicate()
        raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    with file.open("rb") as lines:
        for line in lines:
            yield parse_json(line)
