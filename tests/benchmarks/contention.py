"""Four processes at once build the same and overlapping graphs in one store, with flock and without it.

In each round, random artifacts are missing. Every process must succeed, each missing artifact must be built
once, and the artifacts must equal those of a single process. Without flock (ENOSYS, as on some network and
parallel file systems), the lock is a file that exists.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import shutil
import subprocess
import tempfile
import traceback
from collections import Counter
from pathlib import Path

from pipeline.fingerprint import canonical, file_digest
from pipeline.plan.explain import explain
from pipeline.run.run import prepare_plan
from pipeline.store.store import MANIFEST, Store
from pipeline.store.verify import verify
from tests.benchmarks.figures import Figure, at_least, at_most, write
from tests.e2e.conftest import CHEAP, Finished, command, run
from tests.e2e.test_chain import CHAIN

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
        chance, failed, built = random.Random(options.seed), 0, 0
        for number in range(options.rounds):
            training = [chance.choice(("sft", "grpo"))] if number % TRAINING_EVERY == 0 else []
            missing = [stage for stage in CHAIN if stage not in ("sft", "grpo") and chance.random() < 0.4]
            store = root / f"{kind}-{number}" / "store"
            try:
                built += _round(finished, store, [*training, *missing], environment)
                shutil.rmtree(store.parent)
                outcome = "ok"
            except AssertionError:  # the store stays for inspection
                traceback.print_exc()
                failed, outcome = failed + 1, "FAILED"
            print(f"{number + 1}/{options.rounds} {kind}, {[*training, *missing]}: {outcome}", flush=True)
        figures += [
            at_least(f"{kind}_rounds", options.rounds, ROUNDS_TARGET, "rounds"),
            at_most(f"{kind}_rounds_failed", failed, 0, "rounds"),
            Figure(f"{kind}_stages_built", built, "stages"),
        ]
    if all(figure.met is not False for figure in figures):
        shutil.rmtree(root)
    return write("contention", figures)


def _round(finished: Path, store: Path, removed: list[str], environment: dict[str, str]) -> int:
    """Build all graphs at once in a copy of a finished store; return the number of stages that were built."""
    shutil.copytree(finished, store, symlinks=True)
    for stage in removed:
        shutil.rmtree(store / stage)
    plans = (explain(*prepare_plan([*CHEAP, f"store={store}", *overrides])) for overrides in GRAPHS)
    missing = Counter(
        stage
        for stage, _ in {(row.stage, row.path) for rows in plans for row in rows if row.state != "CACHED"}
    )
    ended = _run_all(store, environment)
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


def _run_all(store: Path, environment: dict[str, str]) -> list[Finished]:
    outputs = [
        (store.parent / f"{number}.out", store.parent / f"{number}.err") for number in range(len(GRAPHS))
    ]
    processes = []
    for overrides, (out, err) in zip(GRAPHS, outputs, strict=True):
        with out.open("w") as stdout, err.open("w") as stderr:
            line = command(store, *overrides)
            processes.append(subprocess.Popen(line, stdout=stdout, stderr=stderr, env=environment))
    codes = [process.wait(timeout=900) for process in processes]
    return [
        Finished(code, out.read_text(), err.read_text())
        for code, (out, err) in zip(codes, outputs, strict=True)
    ]


def _contents(store: Path) -> dict[str, str]:
    """Return STAGE/DIGITS/FILE -> SHA-256 of all files that do not depend on time, memory and the run.

    The model card shows the command of the run that built it.
    """
    return {
        file.relative_to(store).as_posix(): _digest(file)
        for file in sorted(store.glob("[!.]*/*/**/*"))
        if file.is_file()
        and file.relative_to(store).parts[0] not in ("report", "runs")
        and file.name not in (MANIFEST, "metrics.jsonl", "README.md")
        and file.parent.name != "tensorboard"
    }


def _digest(file: Path) -> str:
    if file.name != "result.json":
        return file_digest(file)
    values = json.loads(file.read_text())
    values.pop("peak_memory_gib", None)
    return hashlib.sha256(canonical(values).encode()).hexdigest()
