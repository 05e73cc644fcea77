"""Results of a benchmark: results/NAME.json with the latest figures of each kind of machine."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
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
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def wall_s(
    command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None, allowed: int = 0
) -> float:
    """Return the wall time of a process.

    Args:
        command: program and arguments.
        cwd: working directory.
        env: variables added to the environment.
        allowed: accepted exit code other than 0.
    """
    began = time.perf_counter()
    done = subprocess.run(
        list(command), cwd=cwd, env={**os.environ, **(env or {})}, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if done.returncode not in (0, allowed):
        raise RuntimeError(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return seconds


def paired_medians(runs: int, *sides: object) -> list[float]:
    """Return the median times of functions that alternate, so that changes of the machine affect all."""
    times: list[list[float]] = [[] for _ in sides]
    for number in range(runs + 1):
        for side, measured in zip(sides, times, strict=True):
            seconds = side()  # type: ignore[operator]
            if number:  # the first round warms caches
                measured.append(seconds)
    return [statistics.median(measured) for measured in times]
