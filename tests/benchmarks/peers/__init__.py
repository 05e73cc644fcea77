"""Training with TRL, in a separate environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks.figures import run

PROJECT = Path(__file__).parents[3]


def train_with_trl(python: str, root: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Run trl_grpo.py with the interpreter `python`; return its result."""
    script, given, result = Path(__file__).with_name("trl_grpo.py"), root / "given.json", root / "result.json"
    given.write_text(json.dumps(settings), encoding="utf-8")
    run([python, str(script), str(given), str(result)], env={"PYTHONPATH": str(PROJECT)})
    values: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return values
