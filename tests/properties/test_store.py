"""Random operations on a store, with damage and kills: a wrong artifact never passes as a correct one."""

import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from pipeline.errors import StoreError
from pipeline.store import attempt, collect, history
from pipeline.store.store import MANIFEST
from pipeline.store.verify import quarantine, verify
from tests.properties.world import DONE, FAILED, KILLED, REFUSED, STEPS, UNLISTED, World, is_intact

POINTS = st.integers(0, 2)
CRASHES = st.integers(0, 400)
"""Number of the system call at which a process dies."""
NUMBERS = st.integers(0, 10_000)
"""Which artifact, file or run; not drawn from the store, whose content depends on timing."""
CLOCKS = st.sampled_from((0.0, 0.0, 0.0, -1e6, 3600.0, 1e8))
WAYS = ("flip", "cut", "remove", "empty", "add", "touch")
GARBAGE = (b"\n", b"{", b"null\n", b'{"run": 1, "event": "started"}\n', b"\xff\xfe\n", b"[]\n")


class StoreMachine(RuleBasedStateMachine):
    """Operations on a store, each with what must be true afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(Path(tempfile.mkdtemp(prefix="store-")))
        self.store = self.world.store
        self.lost_history = False
        self.changed_manifests: set[int] = set()
        """Inodes of artifacts whose manifest was changed."""
        self.patience_s, attempt.PATIENCE_S = attempt.PATIENCE_S, 0.2

    def teardown(self) -> None:
        attempt.PATIENCE_S = self.patience_s
        shutil.rmtree(self.world.directory, ignore_errors=True)

    def present(self):
        """Return the artifacts that exist, complete or not, with their directories."""
        paths = {key: self.store.path(key) for key in self.world.keys}
        return {key: path for key, path in paths.items() if path.is_dir()}

    def intact(self):
        """Return the artifacts with the expected content."""
        return {key for key, path in self.present().items() if is_intact(path, key)}

    def accepted(self):
        """Return the artifacts that the store accepts as complete."""
        return {key for key in self.world.keys if self.store.problem(key, deep=True) is None}

    def checkpoint(self, key):
        file = self.store.work_dir(key) / "checkpoint"
        return int(file.read_text()) if file.exists() else 0

    @rule(point=POINTS, clock=CLOCKS)
    def run(self, point, clock):
        """A run builds exactly what is missing, resumes from checkpoints, and succeeds."""
        specs, before = self.world.plans[point].specs, len(self.world.started())
        missing = {str(k): self.checkpoint(k) for k in {s.key for s in specs} - self.accepted()}
        for _ in range(len(specs) + 1):  # an input with hidden damage is found when it is read
            code = self.world.wait(self.world.fork(self.world.run(point), clock_s=clock))
            if code != FAILED:
                break
        assert code == DONE
        assert all(spec.key in self.intact() for spec in specs)
        started = self.world.started()[before:]
        assert len(started) == len(missing) and dict(started) == missing

    @rule(point=POINTS, crash=CRASHES, clock=CLOCKS)
    def killed_run(self, point, crash, clock):
        code = self.world.wait(self.world.fork(self.world.run(point), crash, clock))
        assert code in (DONE, KILLED, FAILED)

    @rule(runs=st.lists(st.lists(POINTS, min_size=1, max_size=2, unique=True), min_size=1, max_size=3),
          crash=CRASHES | st.none())  # fmt: skip
    def concurrent_runs(self, runs, crash):
        """Runs and sweeps at the same time, one of which may be killed, build each artifact once."""
        before, accepted = len(self.world.started()), self.accepted()
        children = [
            self.world.fork(self.world.run(*points), crash if number == 0 else None)
            for number, points in enumerate(runs)
        ]
        codes = [self.world.wait(child) for child in children]
        assert all(code in (DONE, FAILED) for code in codes[1:]), codes
        if all(code == DONE for code in codes):
            started = [artifact for artifact, _ in self.world.started()[before:]]
            assert len(started) == len(set(started)), started
            assert not {str(key) for key in accepted} & set(started)
            plans = [self.world.plans[point] for points in runs for point in points]
            assert {spec.key for plan in plans for spec in plan.specs} <= self.intact()

    @rule(artifact=NUMBERS, file=NUMBERS, way=st.sampled_from(WAYS))
    def damage(self, artifact, file, way):
        path = _pick(sorted(self.present().values()), artifact)
        damaged = path and _pick(sorted(f for f in path.rglob("*") if f.is_file()), file)
        if path is not None and way == "add":
            (path / UNLISTED).write_text("x")
        elif damaged is not None:
            damaged.chmod(0o644)
            content = bytearray(damaged.read_bytes())
            if damaged == path / MANIFEST and way != "touch":
                self.changed_manifests.add(path.stat().st_ino)
            if way == "flip" and content:
                content[file % len(content)] ^= 1
            if way == "touch":
                os.utime(damaged, (time.time() + 1e6,) * 2)
            elif way == "remove":
                damaged.unlink()
            else:
                damaged.write_bytes({"empty": b"", "cut": content[: len(content) // 2]}.get(way, content))

    @rule(repair=st.booleans())
    def verify(self, repair):
        """`verify --deep` finds all damage and nothing else; --repair moves exactly that to quarantine."""
        intact = self.intact()
        damaged = {p for k, p in self.present().items() if k not in intact or (p / UNLISTED).exists()}
        findings = list(verify(self.store, deep=True))
        assert damaged <= {finding.path for finding in findings}
        for finding in findings:
            assert finding.path in damaged or finding.path.stat().st_ino in self.changed_manifests, finding
        if repair:
            for finding in findings:
                quarantine(self.store, finding)
            assert not list(verify(self.store, deep=True))

    @rule(keep=st.integers(0, 3), delete=st.booleans(), crash=CRASHES | st.none())
    def gc(self, keep, delete, crash):
        """`gc` removes all that no retained run needs, nothing else, and nothing if history was lost."""
        accepted, known = self.accepted(), history.runs(self.store.root)
        needed = _needed(list(known.values()), keep)
        if crash is not None and delete:
            code = self.world.wait(self.world.fork(lambda: _collect(self.store, keep), crash))
            assert code in (DONE, REFUSED, KILLED)
        else:
            try:
                collect.collect(self.store, keep, delete)
            except StoreError:
                assert self.lost_history or not known, "refused without a reason"
                assert self.accepted() == accepted
                return
        left = self.accepted()
        assert {key for key in accepted if str(key) in needed} <= left <= accepted
        if not delete:
            assert left == accepted
        elif crash is None and not self.lost_history:
            made = {artifact for run in known.values() for artifact in run.artifacts.values()}
            assert not {str(key) for key in left} & (made - needed)

    @rule(event=st.sampled_from(("pinned", "unpinned", "named")), number=NUMBERS)
    def mark(self, event, number):
        run = _pick(list(history.runs(self.store.root)), number)
        if run is not None:
            history.record(self.store.root, run, event, **({"name": "kept"} if event == "named" else {}))

    @rule(line=st.sampled_from(GARBAGE))
    def append_garbage(self, line):
        with (self.store.root / history.FILE).open("ab") as file:
            file.write(line)

    @rule(share=st.floats(0, 0.9))
    def lose_history(self, share):
        file = self.store.root / history.FILE
        if file.exists() and (size := file.stat().st_size):
            os.truncate(file, int(size * share))
            self.lost_history = True

    @invariant()
    def accepted_artifacts_are_intact(self):
        for key in self.accepted():
            assert is_intact(self.store.path(key), key), key
            assert self.checkpoint(key) in range(STEPS + 1)


def _pick(items, number):
    return items[number % len(items)] if items else None


def _needed(runs, keep):
    """Return the artifacts of pinned, named and live runs and of the newest `keep` distinct others."""
    needed, distinct = set(), []
    for run in reversed(runs):
        identity = tuple(sorted(run.artifacts.values()))
        if run.pinned or run.name or run.state == "running":
            needed |= set(identity)
        elif identity in distinct or len(distinct) < keep:
            distinct += [identity] if identity not in distinct else []
            needed |= set(identity)
    return needed


def _collect(store, keep):
    try:
        collect.collect(store, keep, delete=True)
    except StoreError:
        return REFUSED
    return DONE


@pytest.mark.hypothesis
@pytest.mark.slow
def test_wrong_artifacts_never_pass_as_correct():
    few = settings(max_examples=max(1, settings().max_examples // 4), stateful_step_count=12)
    run_state_machine_as_test(StoreMachine, settings=few)
