"""What a run takes from a remote while it goes on. Without the remote it goes on, too."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from pipeline.errors import RemoteError
from pipeline.plan.graph import Plan, StageSpec
from pipeline.plan.shared import Shared, look, open_place
from pipeline.run.progress import Display
from pipeline.run.pushing import Pushing, beside
from pipeline.store.remote.copies import find
from pipeline.store.remote.pull import pull, view
from pipeline.store.store import Manifest, Store


class Sharing:
    """The remote of one run, for as long as it answers."""

    def __init__(self, plan: Plan, store: Store, whole: bool) -> None:
        """Ask what is there, once.

        Args:
            plan: what the run builds.
            store: where it is going to be.
            whole: let nothing stay there: somebody else looks at the store, too.

        Raises:
            ConfigError: the remote cannot be used with what is installed.
        """
        self._store, self._remote = store, plan.config.remote
        self._place = open_place(self._remote)
        self.shared, self._lost = Shared(self._place.url), False
        self._pushing: Pushing | None = None
        try:
            self.shared = look(plan, store, whole) or self.shared
        except RemoteError as error:
            self.lose(error)

    def lose(self, error: RemoteError) -> None:
        """Tell once that this run goes on without the remote."""
        if not self._lost:
            self._lost = True
            print(f"warning: remote: {error}; this run goes on without it", file=sys.stderr, flush=True)

    def bring(self, stage: str, spec: StageSpec, display: Display) -> bool:
        """Pull a stage's artifact; False where it has to be built."""
        copy = self.shared.pull.get(stage) or self.shared.stays.get(stage)
        if copy is None or self._lost:
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
                self.lose(error)
            else:
                if self._pushing is not None:
                    self._pushing.refuse([error.refused])
                display.warn(stage, f"{error}; it is built here")
            return False
        return came

    def may_view(self, stage: str) -> bool:
        """Whether files of a stage's artifact can be read that stays on the remote."""
        return stage in self.shared.stays and not self._lost

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
            self._pushing.begin(run, keys, display, self._lost)

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
