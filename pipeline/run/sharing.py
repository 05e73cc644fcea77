"""Use of a remote by a run; if the remote fails, the run continues without it."""

import json
import mmap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pipeline.config.sections import RemoteConfig
from pipeline.errors import ConfigError, Problem, Refused, RemoteError, StoreError
from pipeline.plan.graph import Plan, StageSpec
from pipeline.run.progress import Display
from pipeline.store.remote import records
from pipeline.store.remote.copies import Copy, find
from pipeline.store.remote.remote import Remote
from pipeline.store.remote.transfer import download, pull, push
from pipeline.store.store import MANIFEST, Key, Store
from pipeline.terminal import say
from stages.base.files import shown_bytes

REMEDY = "name one: remote=s3://BUCKET/PREFIX, sftp://HOST/DIR or file:///DIR, or set GRPOFLOW_REMOTE"


def open_remote(config: RemoteConfig) -> Remote:
    """Return the remote of a configuration; raise ConfigError if there is none or a package is missing."""
    if not config.url:
        raise ConfigError([Problem("remote", None, "is not set", REMEDY)])
    return Remote(config.url, config.endpoint, config.timeout_s)


def warn(text: object) -> None:
    """Print a warning about a remote."""
    say(f"warning: remote: {text}", stderr=True)


class Connection:
    """Connection to a remote, shared by the runs of a sweep and by forks of this process."""

    def __init__(self, config: RemoteConfig, without: str = "this run goes on without it") -> None:
        """`without`: what the caller does if the remote fails, for the warning."""
        self.remote, self._without = open_remote(config), without
        self._known: dict[Key, list[Copy]] = {}
        self._lost = mmap.mmap(-1, 1)  # forks write to the same page

    @property
    def lost(self) -> bool:
        """True after the remote failed; it is not used any more then."""
        return self._lost[0] != 0

    def lose(self, error: RemoteError) -> None:
        """Stop using the remote, and warn about that once."""
        if not self.lost:
            self._lost[0] = 1
            warn(f"{error}; {self._without}")

    def find(self, keys: Sequence[Key]) -> Mapping[Key, list[Copy]]:
        """Return the copies of artifacts; none after the remote failed."""
        new = [key for key in keys if key not in self._known]
        try:
            if new and not self.lost:
                self._known |= find(self.remote, new, lambda error: warn(f"{error}; it is built here"))
        except RemoteError as error:
            self.lose(error)
        return {} if self.lost else self._known


class Sharing:
    """The remote of one run."""

    def __init__(
        self, plan: Plan, missing: Sequence[StageSpec], store: Store, display: Display, connection: Connection
    ) -> None:
        """Find the artifacts that the remote has among the `missing` stages of a plan.

        The points of a sweep, whose display has a label, pull all of them completely.
        """
        self.connection, self._remote = connection, connection.remote
        self._store, self._display = store, display
        usable = [spec for spec in missing if spec.name not in plan.rebuilt]
        known = connection.find([spec.key for spec in usable])
        self.to_pull = {
            spec.name: copy
            for spec in usable
            for copy in reversed(known.get(spec.key, []))
            if _fits(spec, copy)
        }
        """Copies that are pulled completely, by stage."""
        self.remote_only: dict[str, Copy] = {}
        """Copies that stay on the remote: no stage here reads them, or only single files."""
        if not display.label:
            self._keep_unread(plan, missing)
        pushes = plan.config.remote.pushes
        self._keys = [spec.key for spec in missing if pushes(spec.name) and spec.name not in self.remote_only]

    def _keep_unread(self, plan: Plan, missing: Sequence[StageSpec]) -> None:
        """Move copies of which no stage reads all files to `remote_only`."""
        # the result line reads evaluate
        read = {*(plan.target.only or (plan.requested[-1].name,)), "evaluate"}
        for spec in reversed(missing):
            if spec.name not in self.to_pull:
                read |= set() if spec.stage.reads else {key.stage for key in spec.inputs.values()}
            elif spec.name not in read:
                self.remote_only[spec.name] = self.to_pull.pop(spec.name)

    def explained(self) -> dict[str, tuple[str, int]]:
        """Return for each stage that need not be built the reason for `plan`, and the bytes to pull."""
        texts = {
            stage: (f"{shown_bytes(copy.bytes)} stay at {self._remote.url}: nothing here reads all of it", 0)
            for stage, copy in self.remote_only.items()
        }
        for stage, copy in self.to_pull.items():
            texts[stage] = f"pulls {shown_bytes(copy.bytes)} from {self._remote.url}", copy.bytes
        return texts

    def pull(self, spec: StageSpec) -> bool:
        """Pull a stage's artifact; return False if it has to be built."""
        stage, display = spec.name, self._display
        copy = self.to_pull.get(stage) or self.remote_only.get(stage)
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
                copy, views[key.stage] = self.remote_only[key.stage], work / "views" / key.stage
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
        copy = self.to_pull.get(spec.name) or self.remote_only.get(spec.name)
        return "pulled" if copy is not None and copy.path.endswith(digest[:8]) else "done"


def _fits(spec: StageSpec, copy: Copy) -> bool:
    """Return True if a manifest has the code version and inputs that its fingerprint claims."""
    inputs = {name: key.fingerprint for name, key in spec.inputs.items()}
    return copy.manifest.code_version == spec.version and dict(copy.manifest.inputs) == inputs
