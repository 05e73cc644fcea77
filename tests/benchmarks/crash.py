"""Kill runs with kill -9 at random moments: first single stages of prepared stores, then complete runs.

After each kill, no damaged artifact is accepted, the next run succeeds, and no finished stage runs again.
Failed trials are printed and counted, and their stores are kept.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tests.benchmarks.figures import Figure, at_least, at_most, survivors, write
from tests.e2e import crash
from tests.e2e.conftest import run
from tests.e2e.test_chain import CHAIN

KILLS_TARGET, CHAIN_KILLS_TARGET = 200, 10


def main(arguments: list[str]) -> bool:
    """Kill and count, write results/crash.json; return True if every target is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks crash", description=__doc__)
    parser.add_argument("--kills", type=int, default=KILLS_TARGET, help="trials of one stage")
    parser.add_argument(
        "--chain-kills", type=int, default=CHAIN_KILLS_TARGET, help="trials of the whole chain"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="crash-"))
    chance = random.Random(options.seed)
    ready = root / "finished" / "store"
    ready.parent.mkdir()
    assert run(ready).exit_code == 0

    def trials(stages: Sequence[str | None], latest: float) -> dict[str, Callable[[Path], int]]:
        return {
            f"{stage or 'chain'}-{number}": partial(
                crash.trial, ready, stage=stage, share=chance.uniform(0.0, latest)
            )
            for number, stage in enumerate(stages)
        }

    # A little over 1: a kill may also come between the commit and the end of the run.
    single = trials([CHAIN[number % len(CHAIN)] for number in range(options.kills)], 1.1)
    complete = trials([None] * options.chain_kills, 1.0)
    failed, during = survivors(root, single)
    chain_failed, chain_during = survivors(root, complete)
    return write(
        "crash",
        [
            at_least("kills", options.kills, KILLS_TARGET, "trials"),
            at_most("kills_failed", failed, 0, "trials"),
            Figure("kills_that_cost_work", during, "trials"),
            at_least("chain_kills", options.chain_kills, CHAIN_KILLS_TARGET, "trials"),
            at_most("chain_kills_failed", chain_failed, 0, "trials"),
            Figure("chain_kills_that_cost_work", chain_during, "trials"),
        ],
    )
