"""Use of a remote by a run; if the remote fails, the run continues without it."""

from __future__ import annotations

import json
import mmap
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from pipeline.config.remote import RemoteConfig, quote
from pipeline.errors import Refused, RemoteError
from pipeline.plan.graph import Plan, StageSpec
from pipeline.plan.shared import Shared, look, open_remote, warn
from pipeline.run.progress import Display
from pipeline.store.remote.copies import Copy
from pipeline.store.remote.transfer import download, pull
from pipeline.store.store import MANIFEST, Key, Manifest, Store


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
            display: display of the run; the points of a sweep (with a label) pull all artifacts completely.
            previous: remote of an earlier run of the same sweep, whose connection is reused if it fits.
        """
        config = plan.config.remote
        reused = previous is not None and previous.connection.config == config
        self.connection: Connection = previous.connection if previous and reused else Connection(config)
        self._store, self._display, self._remote = store, display, self.connection.remote
        self._pushes: list[subprocess.Popen[bytes]] = []
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

    def committed(self, spec: StageSpec) -> None:
        """Push an artifact in the background."""
        if spec.key in self._keys and not self.connection.lost:
            command, quiet = self._command([spec.key]), subprocess.DEVNULL
            process = subprocess.Popen(
                command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
            )
            self._pushes.append(process)

    def end(self, run: str, interrupted: bool = False) -> None:
        """Push what has not been pushed yet, and the run's record; stop at once if it was interrupted."""
        for process in self._pushes if interrupted else ():
            process.terminate()
        keys = [] if interrupted else [key for key in self._keys if self._store.problem(key) is None]
        if not keys:
            return
        done = subprocess.run(self._command(keys), stdin=subprocess.DEVNULL, capture_output=True, text=True)
        names, url = ", ".join(map(str, keys)), self._remote.url
        if done.returncode == 0:
            self._display.print_line(f"pushed to {url}: {names}")
            return
        reason = "" if self.connection.lost else f" ({' '.join(done.stderr.split()[1:])})"
        self._display.print_line(
            f"warning: push: not at {url}: {names}{reason}; push later: `grpoflow push {run}`"
        )

    def _command(self, keys: Iterable[Key]) -> list[str]:
        """Return the command line that pushes artifacts; it waits for other pushes from the same store."""
        config = self.connection.config
        overrides = [quote("store", str(self._store.root)), quote("remote.url", str(config.url))]
        overrides += [quote("remote.endpoint", config.endpoint)] if config.endpoint else []
        overrides.append(f"remote.timeout_s={config.timeout_s}")
        return [sys.executable, "-m", "pipeline.cli", "push", *map(str, keys), *overrides]

    @property
    def remote_manifests(self) -> Mapping[str, Manifest]:
        """Manifests of remote-only artifacts, by stage."""
        return {stage: copy.manifest for stage, copy in self.shared.remote_only.items()}

    def was_pulled(self, spec: StageSpec) -> bool:
        """Return True if the store's artifact was pulled, by any process."""
        copy = self.shared.pull.get(spec.name)
        if copy is None or self._store.problem(spec.key) is not None:
            return False
        local, pulled = self._store.manifest(spec.key), copy.manifest
        return (local.host, local.started, local.ended) == (pulled.host, pulled.started, pulled.ended)


def _report_refused(error: RemoteError) -> None:
    warn(f"{error}; it is built here")
