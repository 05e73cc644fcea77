"""Run, kill, damage, gc, verify, resume, move, two at a time, clock jumps: and what must hold after each."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pipeline.errors import REPORTED, StoreError
from pipeline.store import attempt, checksum, collect, history
from pipeline.store.store import MANIFEST, Key
from pipeline.store.verify import artifacts, quarantine, verify
from tests.fuzz.worlds import DONE, FAILED, KILLED, REFUSED, STEPS, STRANGER, World, files_of, is_right

T = TypeVar("T")
WAYS = st.sampled_from(("flip", "cut", "remove", "empty", "add", "retime"))
POINTS = st.integers(0, 2)
CRASHES = st.integers(0, 400)
GARBAGE = (b"\n", b"{", b"null\n", b'{"run": 1, "event": "started"}\n', b"\xff\xfe\n", b"[]\n")
NUMBERS = st.integers(0, 10_000)
"""Which of what there is: nothing drawn depends on a store, in which chance decides between processes."""
CLOCKS = st.sampled_from((0.0, 0.0, 0.0, -1e6, 3600.0, 1e8))


class StoreMachine(RuleBasedStateMachine):
    """The model: which artifacts are right, what a kept run needs, what was done to the history."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="fuzz-store-"))
        self.lost_history = False
        self.marred: set[int] = set()
        """Directories (by inode) of artifacts whose manifest's own text was changed."""
        self.patience_s, attempt.PATIENCE_S = attempt.PATIENCE_S, 0.2

    @initialize()
    def begin(self) -> None:
        """An empty store."""
        self.world = World(self.directory)

    def teardown(self) -> None:
        """Remove everything."""
        attempt.PATIENCE_S = self.patience_s
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- what can be seen, apart from the code under test

    def there(self) -> dict[Key, Path]:
        """Artifacts whose directory is there."""
        paths = {key: self.world.store.path(key) for key in self.world.keys}
        return {key: path for key, path in paths.items() if path.is_dir()}

    def right(self) -> set[Key]:
        """Artifacts with their content untouched."""
        return {key for key, path in self.there().items() if is_right(path, key)}

    def whole(self) -> set[Key]:
        """Artifacts that the store takes for whole."""
        return {key for key in self.world.keys if self.world.store.problem(key, deep=True) is None}

    def checkpoint(self, key: Key) -> int:
        """The step from which an artifact's next attempt must go on."""
        file = self.world.store.work_dir(key) / "checkpoint"
        return int(file.read_text()) if file.exists() else 0

    # --- what is done

    @rule(point=POINTS, clock=CLOCKS)
    def run(self, point: int, clock: float) -> None:
        """A run that nobody disturbs makes just what is missing, goes on where it stopped, and succeeds."""
        specs = self.world.plans[point].specs
        missing = [spec.key for spec in specs if spec.key not in self.whole()]
        since = {str(key): self.checkpoint(key) for key in missing}
        before = len(self.world.events())
        code = self.world.wait(self.world.start(self.world.run(point), clock=clock))
        ran = self.world.events()[before:]
        for _ in range(len(specs)):  # an input whose damage sizes do not show is found on the way
            if code != FAILED:
                break
            code = self.world.wait(self.world.start(self.world.run(point), clock=clock))
            ran = self.world.events()[before:]
        assert code == DONE
        assert all(spec.key in self.right() for spec in specs)
        assert sorted(event.key for event in ran) == sorted(since), (ran, since)
        assert {event.key: event.start for event in ran} == since

    @rule(point=POINTS, crash=CRASHES, clock=CLOCKS)
    def killed(self, point: int, crash: int, clock: float) -> None:
        """Kill -9 at any system call."""
        code = self.world.wait(self.world.start(self.world.run(point), crash, clock))
        assert code in (DONE, KILLED, FAILED)

    @rule(points=st.lists(POINTS, min_size=2, max_size=3), crash=CRASHES | st.none())
    def together(self, points: list[int], crash: int | None) -> None:
        """Several at a time, of which one may be killed: nothing is made twice while the locks hold."""
        before, whole = len(self.world.events()), self.whole()
        children = [
            self.world.start(self.world.run(point), crash if number == 0 else None)
            for number, point in enumerate(points)
        ]
        codes = [self.world.wait(child) for child in children]
        assert all(code in (DONE, FAILED) for code in codes[1:]), codes
        if all(code == DONE for code in codes):
            ran = [event.key for event in self.world.events()[before:]]
            assert len(ran) == len(set(ran)), ran
            assert not {str(key) for key in whole} & set(ran)

    @rule(
        points=st.lists(POINTS, min_size=2, max_size=3, unique=True), crash=CRASHES | st.none(), clock=CLOCKS
    )
    def swept(self, points: list[int], crash: int | None, clock: float) -> None:
        """A sweep, whose points all live from its start, and what they share is made once."""
        before, whole = len(self.world.events()), self.whole()
        code = self.world.wait(self.world.start(self.world.run(*points), crash, clock))
        assert code != KILLED or crash is not None
        if code == DONE:
            ran = [event.key for event in self.world.events()[before:]]
            assert len(ran) == len(set(ran)) and not {str(key) for key in whole} & set(ran), ran
            wanted = {spec.key for point in points for spec in self.world.plans[point].specs}
            assert wanted <= self.right()

    @rule(what=NUMBERS, where=NUMBERS, way=WAYS)
    def damage(self, what: int, where: int, way: str) -> None:
        """A disk, a person or a cosmic ray."""
        path = _one_of(sorted(self.there().values()), what)
        if path is not None and way == "add":
            (path / STRANGER).write_text("x")
            return
        file = path and _one_of(list(files_of(path)), where)
        if path is None or file is None:
            return
        if file == path / MANIFEST and way != "retime":
            self.marred.add(path.stat().st_ino)
        file.chmod(0o644)
        if way == "retime":
            os.utime(file, (time.time() + 1e6,) * 2)
        elif way == "remove":
            file.unlink()
        else:
            content = bytearray(file.read_bytes())
            if way == "flip" and content:
                content[where % len(content)] ^= 1
            file.write_bytes(
                b"" if way == "empty" else content[: len(content) // 2] if way == "cut" else content
            )

    @rule(repair=st.booleans())
    def verify(self, repair: bool) -> None:
        """Verify --deep finds what is damaged, and nothing else; --repair moves exactly that away."""
        right = self.right()
        damaged = {
            path for key, path in self.there().items() if key not in right or (path / STRANGER).exists()
        }
        found = list(verify(self.world.store, deep=True))
        changed = {finding.path for finding in found}
        assert damaged <= changed, (damaged, changed)
        for finding in found:
            assert finding.path in damaged or finding.path.stat().st_ino in self.marred, finding
        if repair:
            for finding in found:
                quarantine(self.world.store, finding)
            assert not list(verify(self.world.store, deep=True))

    @rule(keep=st.integers(0, 3), delete=st.booleans(), crash=CRASHES | st.none())
    def gc(self, keep: int, delete: bool, crash: int | None) -> None:
        """It removes what no kept run needs, and nothing that one does; nothing without a sound history."""
        store, whole = self.world.store, self.whole()
        known = history.runs(store.root)
        needed = _needed(list(known.values()), keep)
        if crash is not None and delete:
            code = self.world.wait(self.world.start(lambda: _collect(self.world, keep), crash))
            assert code in (DONE, REFUSED, KILLED)
        else:
            try:
                collect.collect(store, keep, delete)
            except StoreError:
                assert self.lost_history or not known, "refused without a reason"
                assert self.whole() == whole
                return
        assert {key for key in whole if str(key) in needed} <= self.whole()
        assert self.whole() <= whole
        if not delete:
            assert self.whole() == whole
        elif crash is None and not self.lost_history:
            made = {artifact for run in known.values() for artifact in run.artifacts.values()}
            left = [str(key) for key in self.whole() if str(key) in made and str(key) not in needed]
            told = [(run.id, run.state, run.started, run.artifacts) for run in known.values()]
            assert not left, (left, told)

    @rule(event=st.sampled_from(("pinned", "unpinned", "named")), what=NUMBERS)
    def mark(self, event: str, what: int) -> None:
        """Somebody pins, unpins or names a run."""
        run = _one_of(list(history.runs(self.world.store.root)), what)
        if run is not None:
            more = {"name": "kept"} if event == "named" else {}
            history.record(self.world.store.root, run, event, **more)

    @rule(line=st.sampled_from(GARBAGE))
    def scribble(self, line: bytes) -> None:
        """Garbage at the end of the history, as a crash leaves it."""
        with (self.world.store.root / history.FILE).open("ab") as file:
            file.write(line)

    @rule(share=st.floats(0, 0.9))
    def forget(self, share: float) -> None:
        """The history loses its end."""
        file = self.world.store.root / history.FILE
        if file.exists() and (size := file.stat().st_size):
            os.truncate(file, int(size * share))
            self.lost_history = True

    @rule()
    def go_on_without(self) -> None:
        """What gc advises."""
        if self.lost_history:
            (self.world.store.root / checksum.FILE).unlink(missing_ok=True)
            self.lost_history = False

    @rule()
    def move(self) -> None:
        """The store gets another place; nothing runs anew for that."""
        before = self.whole()
        self.world.move()
        assert self.whole() == before

    # --- what must always hold

    @invariant()
    def nothing_wrong_passes_for_right(self) -> None:
        """What the store takes for whole is right, whatever happened."""
        if not hasattr(self, "world"):
            return
        store = self.world.store
        for key in self.whole():
            assert is_right(store.path(key), key), key
            assert self.checkpoint(key) in range(STEPS + 1)

    @invariant()
    def every_command_answers(self) -> None:
        """Whatever lies about in the store, what looks at it gets an answer."""
        if hasattr(self, "world"):
            store = self.world.store
            try:
                history.runs(store.root)
                artifacts(store)
            except REPORTED as error:
                assert str(store.root) in str(error)


def _one_of(things: Sequence[T], number: int) -> T | None:
    """The numbered one, round and round; None where there are none."""
    return things[number % len(things)] if things else None


def _needed(runs: list[history.Record], keep: int) -> set[str]:
    """Artifacts of pinned and named runs and of the newest `keep` that differ: written down apart."""
    needed: set[str] = set()
    seen: list[tuple[str, ...]] = []
    for run in reversed(runs):  # as the history tells them, whatever the clocks said
        identity = tuple(sorted(run.artifacts.values()))
        if run.pinned or run.name or run.state == "running":
            needed |= set(identity)
        elif identity in seen or len(seen) < keep:
            seen += [identity] if identity not in seen else []
            needed |= set(identity)
    return needed


def _collect(world: World, keep: int) -> int:
    try:
        collect.collect(world.store, keep, delete=True)
    except StoreError:
        return REFUSED
    return DONE
