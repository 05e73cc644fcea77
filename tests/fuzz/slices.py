"""What one process of `make fuzz` does: some time at one format, or at a store."""

from __future__ import annotations

import json
import tempfile
import time
import traceback
from pathlib import Path

from tests.fuzz.files import fuzz

MACHINE = "store_machine"


def attempt(name: str, first: int, seconds: float, result: str) -> None:
    """The body of one process; how much it tried and found stands in `result` unless it dies."""
    if name == MACHINE:
        count, finds = machine(first, seconds)
    else:
        with tempfile.TemporaryDirectory(prefix=f"fuzz-{name}-") as root:
            count, found = fuzz(name, Path(root), first, seconds)
        finds = list(map(str, found))
    Path(result).write_text(json.dumps([count, finds]))


def machine(first: int, seconds: float) -> tuple[int, list[str]]:
    """Steps at stores for so many seconds: how many, and those that led to something wrong."""
    from hypothesis import HealthCheck, Phase, seed, settings
    from hypothesis.stateful import run_state_machine_as_test

    from tests.fuzz import store_machine

    finds, end, number = [], time.monotonic() + seconds, first
    many = settings(
        max_examples=5,
        stateful_step_count=40,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # fewer steps are looked for where a find is looked into
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    store_machine.StoreMachine.taken = 0
    while time.monotonic() < end:
        try:
            run_state_machine_as_test(seed(number)(store_machine.StoreMachine), settings=many)
        except Exception as error:
            told = "".join(traceback.format_exception(error))
            finds.append(f"{number}: {told[:3000]}\n…\n{told[-4000:]}" if len(told) > 7000 else told)
            break
        number += 1
    return store_machine.StoreMachine.taken, finds
