"""Whether an interpreter of this machine can rehearse what stands on MindSpore and mindformers."""

from __future__ import annotations

from collections.abc import Iterator

from launch.machine import checks
from pipeline.errors import Problem
from stages.base.engine import Window
from stages.engines.mindformers.checkout import KNOWN

REHEARSAL: tuple[Window, ...] = (
    *KNOWN.packages,
    ("transformers", ">=4.51,<5", "mindformers 1.6.0 wants 4.51.3"),
    ("mindpet", "", "mindformers imports it"),
    ("datasets", "", "mindformers imports it"),
)
"""What mindrlhf and mindformers need on a CPU; the checkouts themselves lie on PYTHONPATH."""
REHEARSAL_INSTALL = (
    "python3.11 -m venv DIR"
    " && DIR/bin/pip install mindspore==2.7.0 mindformers==1.6.0 'numpy<2' 'safetensors<0.8'"
)
"""mindformers for what it requires: the checkout, which goes before it, has research/ besides."""


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
