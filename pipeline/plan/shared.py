"""Artifacts that a plan takes from a remote: completely, or only the files that a stage reads."""

import mmap
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.config.remote import RemoteConfig
from pipeline.errors import ConfigError, Problem, RemoteError
from pipeline.plan.graph import Plan, StageSpec
from pipeline.store.remote.copies import Copy, find
from pipeline.store.remote.remote import Remote
from pipeline.store.store import Key
from stages.base.files import shown_bytes

REMEDY = "name one: remote=s3://BUCKET/PREFIX, sftp://HOST/DIR or file:///DIR, or set GRPOFLOW_REMOTE"


@dataclass(frozen=True)
class Shared:
    """Stages whose artifacts come from the remote, by stage name."""

    url: str
    pull: Mapping[str, Copy] = field(default_factory=dict)
    """Artifacts that are pulled completely."""
    remote_only: Mapping[str, Copy] = field(default_factory=dict)
    """Artifacts that stay on the remote: no stage here reads them, or only single files."""

    def reason(self, stage: str) -> str | None:
        """Return the reason that `plan` shows for a stage; None if the remote does not have its artifact."""
        if stage in self.pull:
            return f"pulls {shown_bytes(self.pull[stage].bytes)} from {self.url}"
        if stage in self.remote_only:
            size = shown_bytes(self.remote_only[stage].bytes)
            return f"{size} stay at {self.url}: nothing here reads all of it"
        return None

    def bytes_pulled(self, stage: str) -> int:
        """Return the bytes that pulling writes to disk; 0 if the artifact stays on the remote."""
        return self.pull[stage].bytes if stage in self.pull else 0


def open_remote(config: RemoteConfig) -> Remote:
    """Return the remote of a configuration; raise ConfigError if there is none or a package is missing."""
    if not config.url:
        raise ConfigError([Problem("remote", None, "is not set", REMEDY)])
    return Remote(config.url, config.endpoint, config.timeout_s)


def warn(text: object) -> None:
    """Print a warning about a remote."""
    print(f"warning: remote: {text}", file=sys.stderr, flush=True)


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

    def look(self, plan: Plan, missing: Sequence[StageSpec], complete: bool = False) -> Shared:
        """Find the missing artifacts of a plan; none if the remote does not answer.

        Args:
            plan: the plan.
            missing: its stages without artifacts in the store.
            complete: pull all artifacts, and all their files.
        """
        url = self.remote.url
        usable = [spec for spec in missing if spec.name not in plan.rebuilt]
        new = [spec.key for spec in usable if spec.key not in self._known]
        try:
            if new and not self.lost:
                self._known |= find(self.remote, new, lambda error: warn(f"{error}; it is built here"))
        except RemoteError as error:
            self.lose(error)
        if self.lost:
            return Shared(url)
        known = self._known
        copies = {spec.name: copy for spec in usable for copy in known[spec.key][::-1] if _fits(spec, copy)}
        return Shared(url, copies) if complete else _divide(plan, missing, copies, url)


def _divide(plan: Plan, missing: Sequence[StageSpec], copies: Mapping[str, Copy], url: str) -> Shared:
    needed = {*(plan.target.only or (plan.requested[-1].name,)), "evaluate"}  # the result line reads evaluate
    pull: dict[str, Copy] = {}
    remote_only: dict[str, Copy] = {}
    for spec in reversed(missing):
        copy = copies.get(spec.name)
        if copy is None:
            needed |= set() if spec.stage.reads else {key.stage for key in spec.inputs.values()}
        else:
            (pull if spec.name in needed else remote_only)[spec.name] = copy
    return Shared(url, pull, remote_only)


def _fits(spec: StageSpec, copy: Copy) -> bool:
    """Return True if a manifest has the code version and inputs that its fingerprint claims."""
    inputs = {name: key.fingerprint for name, key in spec.inputs.items()}
    return copy.manifest.code_version == spec.version and dict(copy.manifest.inputs) == inputs
