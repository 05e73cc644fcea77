"""Four processes at once build the same and overlapping graphs in one store, with flock and without it.

In each round, random artifacts are missing. Every process must succeed, each missing artifact must be built
once, and the artifacts must equal those of a single process. Without flock (ENOSYS, as on some network and
parallel file systems), the lock is a file that exists.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from pipeline.plan.explain import explain
from pipeline.run.run import prepare_plan
from pipeline.store.store import Store
from pipeline.store.verify import verify
from tests.benchmarks.figures import Figure, at_least, at_most, survivors, write
from tests.e2e.conftest import CHEAP, command, finish, run
from tests.e2e.test_chain import CHAIN
from tests.pipeline.stage_digests import contents

ROUNDS_TARGET = 25
GRAPHS = ([], [], ["evaluate.sample_prompts=4"], ["report.title=other"])
"""Overrides of each process: two equal graphs, and two that share all stages but the last ones."""
TRAINING_EVERY = 5
"""One round in so many lacks sft or grpo, which take longest."""
NO_FLOCK = """
import errno, fcntl, os
def flock(*_):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
fcntl.flock = flock
"""


def main(arguments: list[str]) -> bool:
    """Run the rounds, write results/contention.json; return True if every target is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks contention", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS_TARGET)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    root = Path(tempfile.mkdtemp(prefix="contention-"))
    finished = root / "finished" / "store"
    finished.parent.mkdir()
    assert run(finished).exit_code == 0
    (root / "sitecustomize.py").write_text(NO_FLOCK)
    figures: list[Figure] = []
    for kind, path in (("flock", ""), ("no_flock", f"{root}:")):
        environment = {**os.environ, "PYTHONPATH": path + os.environ.get("PYTHONPATH", "")}
        chance = random.Random(options.seed)
        trials: dict[str, Callable[[Path], int]] = {}
        for number in range(options.rounds):
            missing = [stage for stage in CHAIN if stage not in ("sft", "grpo") and chance.random() < 0.4]
            missing += [chance.choice(("sft", "grpo"))] if number % TRAINING_EVERY == 0 else []
            trials[f"{kind}-{number}"] = partial(_round, finished, missing, environment)
        failed, built = survivors(root, trials)
        figures += [
            at_least(f"{kind}_rounds", options.rounds, ROUNDS_TARGET, "rounds"),
            at_most(f"{kind}_rounds_failed", failed, 0, "rounds"),
            Figure(f"{kind}_stages_built", built, "stages"),
        ]
    return write("contention", figures)


def _round(finished: Path, removed: list[str], environment: dict[str, str], directory: Path) -> int:
    """Build all graphs at once in a copy of a finished store; return the number of stages that were built."""
    store = directory / "store"
    shutil.copytree(finished, store, symlinks=True)
    for stage in removed:
        shutil.rmtree(store / stage)
    plans = (explain(*prepare_plan([*CHEAP, f"store={store}", *overrides])) for overrides in GRAPHS)
    missing = Counter(
        stage
        for stage, _ in {(row.stage, row.path) for rows in plans for row in rows if row.state != "CACHED"}
    )
    with ThreadPoolExecutor(len(GRAPHS)) as pool:
        lines = [command(store, *overrides) for overrides in GRAPHS]
        ended = list(pool.map(lambda line: finish(line, directory, timeout=900, env=environment), lines))
    for process in ended:
        assert process.exit_code == 0, process.stderr
    started = Counter(stage for process in ended for stage in process.started)
    assert started == missing, (started, missing)
    assert list(verify(Store(store), deep=True)) == []
    for leftover in ("[!.]*/.building-*", ".work/*", ".quarantine/*"):
        assert not list(store.glob(leftover)), leftover
    expected, actual = _contents(finished), _contents(store)
    assert {name: actual.get(name) for name in expected} == expected
    return started.total()


def _contents(store: Path) -> dict[str, object]:
    """Return what does not depend on time, memory and the run, by STAGE/DIGITS.

    The model card shows the command of the run that built it.
    """
    artifacts = [path for path in store.glob("[!.]*/*") if path.parent.name not in ("report", "runs")]
    values = {path.relative_to(store).as_posix(): contents(path, [store], True)[0] for path in artifacts}
    for files in values.values():
        files.pop("README.md", None)
    return dict(values)
