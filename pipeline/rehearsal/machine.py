"""Whether an interpreter of this machine can rehearse what stands on MindSpore and mindformers."""

from __future__ import annotations

from collections.abc import Iterator

from launch.machine import checks
from launch.windows import REHEARSAL, REHEARSAL_INSTALL
from pipeline.errors import Problem


def missing_packages(python: str | None) -> Iterator[Problem]:
    """What an engine's interpreter lacks.

    Args:
        python: engine.python; None: the first on PATH that is not our own.
    """
    chosen = checks.interpreter(python)
    found = None if chosen is None else checks.versions(chosen, [name for name, *_ in REHEARSAL])
    remedy = f"make one that can rehearse: {REHEARSAL_INSTALL}, then engine.python=DIR/bin/python"
    if chosen is None or found is None:
        yield Problem("engine.python", chosen, "does not answer", remedy)
        return
    lacks = [check for check in checks.packages(REHEARSAL, found.get, chosen) if check.status == "problem"]
    if lacks:
        told = ", ".join(f"{check.name} {check.found}" for check in lacks)
        yield Problem("engine.python", chosen, f"lacks what mindformers stands on: {told}", remedy)
