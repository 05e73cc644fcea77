"""Results of a benchmark: results/NAME.json with the latest figures of each kind of machine."""

from __future__ import annotations

import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    name: str
    value: float | None
    """None: could not be measured, for example because the peer is missing."""
    unit: str
    bar: float | None = None
    """Target; None: no target."""
    met: bool | None = None
    """True if the target is met; None without a target."""


def at_most(name: str, value: float | None, target: float, unit: str = "ratio") -> Figure:
    """Return a figure that must not exceed its target; an unmeasured figure does not meet it."""
    return Figure(name, value, unit, target, value is not None and value <= target)


def at_least(name: str, value: float | None, target: float, unit: str = "ratio") -> Figure:
    """Return a figure that must reach its target; an unmeasured figure does not meet it."""
    return Figure(name, value, unit, target, value is not None and value >= target)


def write(benchmark: str, figures: Sequence[Figure]) -> bool:
    """Print the figures and store them with those of other machines; return True if every target is met."""
    RESULTS.mkdir(exist_ok=True)
    file, here = RESULTS / f"{benchmark}.json", machine()
    stored = json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    elsewhere = [
        item for item in stored if any(item["machine"][key] != here[key] for key in ("cpu", "cores"))
    ]
    values = [*elsewhere, {"machine": here, "figures": [asdict(figure) for figure in figures]}]
    file.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    for figure in figures:
        value = "not measured" if figure.value is None else f"{figure.value:.4g}"
        bar = "" if figure.bar is None else f"  (target {figure.bar:g}: {'met' if figure.met else 'NOT met'})"
        print(f"{benchmark}: {figure.name} = {value} {figure.unit}{bar}")
    return all(figure.met is not False for figure in figures)


def machine() -> dict[str, object]:
    """Describe this machine."""
    cpus = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in cpus if line.startswith("model name")]
    return {
        "cpu": names[0] if names else platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


@dataclass(frozen=True)
class Cost:
    """Time and memory of a process."""

    wall_s: float
    peak_gib: float
    output: str = ""


def run(command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Cost:
    """Run a process; return its wall time, peak memory and standard output.

    Args:
        command: program and arguments.
        cwd: working directory.
        env: variables added to os.environ. The environment is not inherited, because importing MindSpore sets
            OMP_NUM_THREADS=1 there (in C, not in os.environ), which would give a peer a single thread.
    """
    environment = {**os.environ, **(env or {})}
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        child = subprocess.Popen(list(command), cwd=cwd, env=environment, stdout=output, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        errors.seek(0)
        text, error = output.read(), errors.read()
    if child.returncode:
        shown = f"{text[-3000:]}\n{error[-3000:]}"
        raise RuntimeError(f"{' '.join(command)}: exit code {child.returncode}\n{shown}")
    return Cost(seconds, usage.ru_maxrss / 2**20, text)


def wall_s(command: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> float:
    """Return the wall time of a process."""
    return run(command, cwd, env).wall_s


def survivors(root: Path, trials: Mapping[str, Callable[[Path], int]]) -> tuple[int, int]:
    """Return the number of trials that failed, and the sum of the results of the others.

    Args:
        root: directory for a directory of each trial, which stays if the trial fails.
        trials: name of the directory -> function of the directory that checks with `assert`.
    """
    failed = total = 0
    for number, (name, trial) in enumerate(trials.items(), start=1):
        directory = root / name
        directory.mkdir(parents=True)
        try:
            total, outcome = total + trial(directory), "ok"
            shutil.rmtree(directory)
        except AssertionError:
            traceback.print_exc()
            failed, outcome = failed + 1, "FAILED"
        print(f"{number}/{len(trials)} {name}: {outcome}", flush=True)
    return failed, total


def paired_medians(runs: int, *sides: Callable[[], float]) -> list[float]:
    """Return the median times of functions that alternate, so that changes of the machine affect all."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(runs + 1):
        for side, measured in zip(sides, times, strict=True):
            measured.append(side())
    return [statistics.median(measured[1:]) for measured in times]  # the first round warms caches
