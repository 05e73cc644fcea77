"""One round of contention: several processes build the same and overlapping graphs in one store at once."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from pipeline.fingerprint import canonical, file_digest
from pipeline.run.run import prepare_plan
from pipeline.store.store import MANIFEST, Key, Store
from pipeline.store.verify import artifacts, verify
from tests.e2e.conftest import CHEAP, Finished, command

REPOSITORY = Path(__file__).parents[2]


def contend(store: Path, graphs: Sequence[Sequence[str]], locks: bool = True) -> list[Finished]:
    """Run all graphs at once; returns how each ended."""
    lines = [command(store, *overrides) for overrides in graphs]
    if not locks:
        lines = [[sys.executable, "-m", "tests.e2e.lockless", *line[1:]] for line in lines]
    files = [(store.parent / f"{n}.out", store.parent / f"{n}.err") for n in range(len(lines))]
    processes = []
    for line, (out, err) in zip(lines, files, strict=True):
        with out.open("w") as stdout, err.open("w") as stderr:
            processes.append(subprocess.Popen(line, stdout=stdout, stderr=stderr, cwd=REPOSITORY))
    codes = [process.wait(timeout=900) for process in processes]
    return [
        Finished(code, out.read_text(), err.read_text())
        for code, (out, err) in zip(codes, files, strict=True)
    ]


def missing(store: Path, graphs: Sequence[Sequence[str]]) -> set[Key]:
    """Artifacts that the graphs need and the store has not."""
    directory = Store(store)
    specs = [
        spec for overrides in graphs for spec in prepare_plan([*CHEAP, f"store={store}", *overrides])[0].specs
    ]
    return {spec.key for spec in specs if directory.problem(spec.key) is not None}


def round_of(store: Path, *, locks: bool, like: Path, graphs: Sequence[Sequence[str]]) -> tuple[int, int]:
    """All processes succeed, and what they leave is whole and the same as in `like`.

    With locks every missing artifact is built once; without, perhaps by each process that wants it.

    Returns:
        Artifacts that were missing, and stages that ran.
    """
    needed = Counter(key.stage for key in missing(store, graphs))
    finished = contend(store, graphs, locks)
    for run in finished:
        assert run.exit_code == 0, run.stderr
    started = Counter(stage for run in finished for stage in run.started)
    assert started == needed if locks else started.keys() == needed.keys()
    assert list(verify(Store(store), deep=True)) == []
    for leftover in ("[!.]*/.building-*", ".work/*", ".quarantine/*"):
        assert not list(store.glob(leftover))
    expected = contents(like)
    assert {name: digest for name, digest in contents(store).items() if name in expected} == expected
    return sum(needed.values()), sum(started.values())


def contents(store: Path) -> dict[str, str]:
    """STAGE/DIGITS/FILE -> SHA-256, without what tells times and memory."""
    return {
        file.relative_to(store).as_posix(): _digest(file)
        for artifact in artifacts(Store(store))
        for file in sorted(artifact.rglob("*"))
        if file.is_file()
        and artifact.parent.name != "report"
        and file.name not in (MANIFEST, "metrics.jsonl")
        and file.parent.name != "tensorboard"
    }


def _digest(file: Path) -> str:
    """Return the digest of a result without its durations."""
    if file.name != "result.json":
        return file_digest(file)
    values = json.loads(file.read_text())
    values.pop("peak_memory_gib", None)
    return hashlib.sha256(canonical(values).encode()).hexdigest()
