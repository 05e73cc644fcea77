"""Use of a remote by a run; if the remote fails, the run continues without it."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from pipeline.errors import Refused, RemoteError, StoreError
from pipeline.plan.graph import Plan, StageSpec
from pipeline.plan.shared import Connection
from pipeline.run.progress import Display
from pipeline.store.remote import records
from pipeline.store.remote.transfer import download, pull, push
from pipeline.store.store import MANIFEST, Store


class Sharing:
    """The remote of one run."""

    def __init__(
        self, plan: Plan, missing: Sequence[StageSpec], store: Store, display: Display, connection: Connection
    ) -> None:
        """Find the artifacts that the remote has.

        Args:
            plan: the run's plan.
            missing: its stages without artifacts in the store.
            store: the local store.
            display: display of the run; the points of a sweep (with a label) pull all artifacts.
            connection: connection to the remote.
        """
        self.connection, self._remote = connection, connection.remote
        self._store, self._display = store, display
        self.shared = connection.look(plan, missing, complete=bool(display.label))
        config, remote_only = plan.config.remote, self.shared.remote_only
        self._keys = [
            spec.key for spec in missing if config.pushes(spec.name) and spec.name not in remote_only
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

    def state(self, spec: StageSpec) -> str:
        """Return how the run got a missing artifact: remote (it is only there), pulled, or done (built)."""
        digest = self._store.manifest_digest(spec.key)
        if digest is None:
            return "remote"
        copy = self.shared.pull.get(spec.name) or self.shared.remote_only.get(spec.name)
        return "pulled" if copy is not None and copy.path.endswith(digest[:8]) else "done"
