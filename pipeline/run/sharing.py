"""What a run takes from a remote while it goes on. Without the remote it goes on, too."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.config.remote import RemoteConfig
from pipeline.errors import RemoteError
from pipeline.plan.graph import Plan, StageSpec
from pipeline.plan.shared import Shared, look, open_place, warn
from pipeline.run.progress import Display
from pipeline.run.pushing import Pushing, beside
from pipeline.store.remote.copies import Copy, find
from pipeline.store.remote.pull import pull, view
from pipeline.store.store import Key, Manifest, Store


class Connection:
    """A remote as several runs of one build see it, and the forks in which their stages are made.

    Asked once for each artifact; once it does not answer, nobody of them asks it again.
    """

    def __init__(self, remote: RemoteConfig) -> None:
        self.remote, self.place = remote, open_place(remote)
        self.known: dict[Key, list[Copy]] = {}
        self.refused: list[str] = []
        """Paths of copies that are not what they should be, and need to be replaced."""
        self.place.tell(warn)
        self._lost = mmap.mmap(-1, 1)  # forks write into the same page

    @property
    def lost(self) -> bool:
        """Whether it did not answer."""
        return self._lost[0] != 0

    def lose(self, error: RemoteError) -> None:
        """Tell once that what is built goes on without the remote."""
        if not self.lost:
            self._lost[0] = 1
            warn(f"{error}; this run goes on without it")

    def refuse(self, error: RemoteError) -> None:
        """Tell of an artifact that is there and cannot be used."""
        self.refused += [error.refused] if error.refused else []
        warn(f"{error}; it is built here")


class Sharing:
    """The remote of one run, for as long as it answers."""

    def __init__(self, plan: Plan, store: Store, whole: bool, other: Sharing | None = None) -> None:
        """Ask what is there, once.

        Args:
            plan: what the run builds.
            store: where it is going to be.
            whole: let nothing stay there: somebody else looks at the store, too.
            other: that of another run of the same build; what it has found out counts here.

        Raises:
            ConfigError: the remote cannot be used with what is installed.
        """
        self._store, self._remote = store, plan.config.remote
        is_same = other is not None and other.connection.remote == self._remote
        self.connection: Connection = (
            other.connection if other is not None and is_same else Connection(self._remote)
        )
        self._place = self.connection.place
        self.shared = Shared(self._place.url)
        self._pushing: Pushing | None = None
        if self.connection.lost:
            return
        try:
            self.shared = (
                look(plan, store, self._place, self.connection.refuse, self.connection.known, whole)
                or self.shared
            )
        except RemoteError as error:
            self.connection.lose(error)

    def bring(self, stage: str, spec: StageSpec, display: Display) -> bool:
        """Pull a stage's artifact; False where it has to be built."""
        copy = self.shared.pull.get(stage) or self.shared.stays.get(stage)
        if copy is None or self.connection.lost:
            return False
        display.start(stage)
        moved = 0

        def told(count: int) -> None:
            nonlocal moved
            moved += count
            display.progress(stage, {"step": moved, "total": copy.bytes, "unit": "B", "message": "pulling"})

        try:
            came = pull(self._place, self._store, spec.key, told, lambda: display.wait(stage))
        except RemoteError as error:
            if not error.refused:
                self.connection.lose(error)
            else:
                if self._pushing is not None:
                    self._pushing.refuse([error.refused])
                display.warn(stage, f"{error}; it is built here")
            return False
        return came

    def may_view(self, stage: str) -> bool:
        """Whether files of a stage's artifact can be read that stays on the remote."""
        return stage in self.shared.stays and not self.connection.lost

    def views(self, spec: StageSpec, work: Path) -> dict[str, Path]:
        """Of inputs that stay on the remote, the files that a stage reads: stage -> directory.

        Raises:
            RemoteError: the remote does not answer any more, or what it holds is refused.
        """
        found = {}
        for key in spec.inputs.values():
            if spec.reads and self._store.problem(key) is not None:
                copies = find(self._place, key)
                if not copies:
                    raise RemoteError(f"{self._place.url}: {key} is not there any more")
                found[key.stage] = work / "views" / key.stage
                view(self._place, copies[0], found[key.stage], spec.reads)
        return found

    def push(self, run: str, specs: Iterable[StageSpec], display: Display) -> None:
        """From now on push what the run commits of these stages, beside it."""
        keys = [spec.key for spec in specs if self._remote.pushes(spec.name)]
        if keys:
            self._pushing = beside(self._remote, self._store)
            self._pushing.refuse(self.connection.refused)
            self._pushing.begin(run, keys, display, self.connection.lost)

    def end(self, run: str, interrupted: bool = False) -> None:
        """Wait for what is still being pushed; not where somebody wants an end at once."""
        if self._pushing is not None:
            self._pushing.stop() if interrupted else self._pushing.finish(run)

    @property
    def elsewhere(self) -> Mapping[str, Manifest]:
        """The manifests of what stays on the remote."""
        return {stage: copy.manifest for stage, copy in self.shared.stays.items()}

    def came_from_there(self, spec: StageSpec) -> bool:
        """Whether the store's artifact is the remote's, whoever pulled it."""
        copy = self.shared.pull.get(spec.name)
        if copy is None or self._store.problem(spec.key) is not None:
            return False
        here, there = self._store.manifest(spec.key), copy.manifest
        return (here.host, here.started, here.ended) == (there.host, there.started, there.ended)
