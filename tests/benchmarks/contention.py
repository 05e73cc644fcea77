"""Four processes build the same and overlapping graphs in one store, round after round.

With the artifact's lock every missing artifact is built once. Without it, as on a file system whose
locks do not hold, work may be done twice, and what is committed is the same to the last byte.
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
import traceback
from pathlib import Path

from tests.benchmarks.figures import Figure, at_least, at_most, write
from tests.e2e import contention
from tests.e2e.conftest import run
from tests.e2e.test_chain import CHAIN

ROUNDS_BAR = 25
SLOW_EVERY = 5
"""grpo, the long stage, is among what is missing in one round of so many."""


def main(arguments: list[str]) -> bool:
    """Contend and count, write results/contention.json; True when every bar is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks contention", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS_BAR)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    root = Path(tempfile.mkdtemp(prefix="contention-"))
    ready = root / "finished" / "store"
    ready.parent.mkdir()
    assert run(ready).exit_code == 0
    figures = []
    for locks in (True, False):
        failed = wanted = started = 0
        for number in range(options.rounds):
            store = root / f"{'locks' if locks else 'lockless'}-{number}" / "store"
            store.parent.mkdir()
            slow = ["grpo"] if number % SLOW_EVERY == 0 else []
            quick = [stage for stage in CHAIN if stage != "grpo" and chance.random() < 0.5]
            removed = [*slow, *quick] or ["split"]
            contention.damage(ready, store, removed)
            try:
                built, ran = contention.round_of(store, locks=locks, like=ready)
                wanted, started = wanted + built, started + ran
                shutil.rmtree(store.parent)
                outcome = "ok"
            except AssertionError:
                traceback.print_exc()
                failed, outcome = failed + 1, "FAILED"
            kind = "with" if locks else "without"
            print(f"{number + 1}/{options.rounds} {kind} locks, {', '.join(removed)}: {outcome}", flush=True)
        name = "locked" if locks else "lockless"
        figures += [
            at_least(f"{name}_rounds", options.rounds, ROUNDS_BAR, "rounds"),
            at_most(f"{name}_rounds_failed", failed, 0, "rounds"),
            Figure(f"{name}_artifacts_missing", wanted, "artifacts"),
            Figure(f"{name}_stages_run", started, "runs"),
        ]
    return write("contention", figures)
