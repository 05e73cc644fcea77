"""Use of a remote by a run; if the remote fails, the run continues without it."""

from __future__ import annotations

import json
import mmap
from dataclasses import asdict
from pathlib import Path

from pipeline.config.remote import RemoteConfig
from pipeline.errors import Refused, RemoteError, StoreError
from pipeline.plan.graph import Plan, StageSpec
from pipeline.plan.shared import Shared, look, open_remote, warn
from pipeline.run.progress import Display
from pipeline.store.remote import records
from pipeline.store.remote.copies import Copy
from pipeline.store.remote.transfer import download, pull, push
from pipeline.store.store import MANIFEST, Key, Store


class Connection:
    """Connection to a remote, shared by the runs of a sweep and by forks of this process."""

    def __init__(self, config: RemoteConfig) -> None:
        self.config, self.remote = config, open_remote(config)
        self.known: dict[Key, list[Copy]] = {}
        self._lost = mmap.mmap(-1, 1)  # forks write to the same page

    @property
    def lost(self) -> bool:
        """True after the remote failed; it is not used any more then."""
        return self._lost[0] != 0

    def lose(self, error: RemoteError) -> None:
        """Stop using the remote, and warn about that once."""
        if not self.lost:
            self._lost[0] = 1
            warn(f"{error}; this run goes on without it")


class Sharing:
    """The remote of one run."""

    def __init__(self, plan: Plan, store: Store, display: Display, previous: Sharing | None = None) -> None:
        """Find the artifacts that the remote has.

        Args:
            plan: the run's plan.
            store: the local store.
            display: display of the run; the points of a sweep (with a label) pull all artifacts.
            previous: remote of an earlier run of the same sweep, whose connection is reused if it fits.
        """
        config = plan.config.remote
        reused = previous is not None and previous.connection.config == config
        self.connection: Connection = previous.connection if previous and reused else Connection(config)
        self._store, self._display, self._remote = store, display, self.connection.remote
        self.shared = Shared(self._remote.url)
        if not self.connection.lost:
            try:
                known = self.connection.known
                self.shared = look(plan, store, self._remote, _report_refused, known, bool(display.label))
            except RemoteError as error:
                self.connection.lose(error)
        built = [spec for spec in plan.requested if display.states[spec.name] != "cached"]
        self._keys = [
            spec.key
            for spec in built
            if config.pushes(spec.name) and spec.name not in self.shared.remote_only
        ]

    def pull(self, spec: StageSpec) -> bool:
        """Pull a stage's artifact; return False if it has to be built."""
        stage, display = spec.name, self._display
        copy = self.shared.pull.get(stage) or self.shared.remote_only.get(stage)
        if copy is None or self.connection.lost:
            return False
        display.start(stage)
        moved = 0

        def report(size: int) -> None:
            nonlocal moved
            moved += size
            display.progress(stage, {"step": moved, "total": copy.bytes, "unit": "B", "message": "pulling"})

        try:
            return pull(self._remote, self._store, spec.key, report, lambda: display.wait(stage))
        except Refused as error:
            display.warn(stage, f"{error}; it is built here")
        except RemoteError as error:
            self.connection.lose(error)
        return False

    def may_view(self, stage: str) -> bool:
        """Return True if single files of a stage's artifact can be downloaded."""
        return stage in self.shared.remote_only and not self.connection.lost

    def views(self, spec: StageSpec, work: Path) -> dict[str, Path]:
        """Download the files that a stage reads from remote-only inputs; return input stage -> directory."""
        views = {}
        for key in spec.inputs.values():
            if spec.stage.reads and self._store.problem(key) is not None:
                copy, views[key.stage] = self.shared.remote_only[key.stage], work / "views" / key.stage
                names = [name for name in spec.stage.reads if name in copy.manifest.files]
                download(self._remote, copy, views[key.stage], names)
                (views[key.stage] / MANIFEST).write_text(json.dumps(asdict(copy.manifest)), encoding="utf-8")
        return views

    def end(self, run: str) -> None:
        """Push what this run built, and its record."""
        keys = [key for key in self._keys if self._store.problem(key) is None]
        if not keys:
            return
        names, url, reason = ", ".join(map(str, keys)), self._remote.url, ""
        if not self.connection.lost:
            try:
                for key in keys:
                    push(self._remote, self._store, key)
                records.publish(self._remote, self._store, run)
            except StoreError as error:
                reason = f" ({error})"
            else:
                self._display.print_line(f"pushed to {url}: {names}")
                return
        self._display.print_line(
            f"warning: push: not at {url}: {names}{reason}; push later: `grpoflow push {run}`"
        )

    def was_pulled(self, spec: StageSpec) -> bool:
        """Return True if the store's artifact was pulled, by any process."""
        copy = self.shared.pull.get(spec.name)
        digest = self._store.manifest_digest(spec.key)
        return copy is not None and digest is not None and copy.path.endswith(digest[:8])


def _report_refused(error: RemoteError) -> None:
    warn(f"{error}; it is built here")
