"""Artifacts that a plan takes from a remote: completely, or only the files that a stage reads."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.config.remote import RemoteConfig
from pipeline.errors import ConfigError, Problem, RemoteError
from pipeline.plan.graph import Plan, StageSpec
from pipeline.store.remote.copies import Copy, find
from pipeline.store.remote.remote import Remote
from pipeline.store.store import Key, Store
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


def open_remote(config: RemoteConfig) -> Remote:
    """Return the remote of a configuration; raise ConfigError if there is none or a package is missing."""
    if not config.url:
        raise ConfigError([Problem("remote", None, "is not set", REMEDY)])
    return Remote(config.url, config.endpoint, config.timeout_s)


def warn(text: object) -> None:
    """Print a warning about a remote."""
    print(f"warning: remote: {text}", file=sys.stderr, flush=True)


def look(
    plan: Plan,
    store: Store,
    remote: Remote,
    on_refused: Callable[[RemoteError], object],
    known: dict[Key, list[Copy]] | None = None,
    complete: bool = False,
) -> Shared:
    """Find a plan's missing artifacts on the remote.

    Args:
        plan: the plan.
        store: the local store.
        remote: the remote.
        on_refused: called with an error for each refused copy.
        known: results for earlier plans, which this call extends.
        complete: pull all artifacts, and all their files.

    Raises:
        RemoteError: the remote does not answer in time.
    """
    known = {} if known is None else known
    rebuilt = plan.rebuilt
    missing = [spec for spec in plan.requested if spec.name in rebuilt or store.problem(spec.key) is not None]
    usable = [spec for spec in missing if spec.name not in rebuilt]
    if new := [spec.key for spec in usable if spec.key not in known]:
        known.update(find(remote, new, on_refused))
    copies = {spec.name: copy for spec in usable for copy in reversed(known[spec.key]) if _fits(spec, copy)}
    return Shared(remote.url, copies) if complete else _divide(plan, missing, copies, remote.url)


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
