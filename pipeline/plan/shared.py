"""What a plan takes from a remote: whole artifacts that somebody here reads, and of others what is read."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.config.remote import RemoteConfig
from pipeline.errors import ConfigError, Problem, RemoteError
from pipeline.plan.graph import Plan, StageSpec
from pipeline.store.remote.choose import copies_of
from pipeline.store.remote.copies import Copy
from pipeline.store.remote.place import Place
from pipeline.store.store import Key, Store

NONE = "name one: remote=s3://BUCKET/PREFIX, sftp://HOST/DIR or file:///DIR, or set GRPOFLOW_REMOTE"


@dataclass(frozen=True)
class Shared:
    """What of a plan need not be built here; by stage."""

    url: str
    pull: Mapping[str, Copy] = field(default_factory=dict)
    """What somebody here reads whole."""
    stays: Mapping[str, Copy] = field(default_factory=dict)
    """What nobody here reads, or of which a stage reads only the files that it names."""

    def reason(self, stage: str) -> str | None:
        """What `plan` says of a stage that it takes from there, or leaves there; None of others."""
        from stages.base.files import shown_bytes

        if stage in self.pull:
            return f"pulls {shown_bytes(self.pull[stage].bytes)} from {self.url}"
        if stage in self.stays:
            return f"{shown_bytes(self.stays[stage].bytes)} stay at {self.url}: nothing here reads them whole"
        return None


def open_place(remote: RemoteConfig) -> Place:
    """The remote of a configuration.

    Raises:
        ConfigError: it names none, or what its scheme needs is not installed.
    """
    if not remote.url:
        raise ConfigError([Problem("remote", None, "is not set", NONE)])
    return Place(remote.url, remote.endpoint, remote.timeout_s)


def warn(text: object) -> None:
    """Tell of a remote what ends nothing."""
    print(f"warning: remote: {text}", file=sys.stderr, flush=True)


def look(
    plan: Plan,
    store: Store,
    place: Place,
    on_refused: Callable[[RemoteError], None],
    known: dict[Key, list[Copy]] | None = None,
    whole: bool = False,
) -> Shared | None:
    """What the plan's remote has of what the store lacks; None where it lacks nothing.

    Args:
        plan: what is asked for.
        store: where it is to be.
        place: the remote, which is asked briefly.
        on_refused: hears of each artifact there that is not what it should be.
        known: what was found for other plans, and is not asked for again; grows.
        whole: pull all of it.

    Raises:
        RemoteError: it does not answer.
    """
    known = {} if known is None else known
    lacking = [spec for spec in plan.asked if store.problem(spec.key) is not None]
    wanted = [spec for spec in lacking if spec.name not in plan.target.force]
    if not lacking:
        return None
    new = [spec.key for spec in wanted if spec.key not in known]
    if new:
        known.update(copies_of(place.briefly(), new, on_refused))
    fitting = {spec.name: [copy for copy in known[spec.key] if _fits(spec, copy)] for spec in wanted}
    shared = _divide(plan, lacking, {name: found[0] for name, found in fitting.items() if found}, place.url)
    return Shared(place.url, {**shared.pull, **shared.stays}) if whole else shared


def _divide(plan: Plan, lacking: Sequence[StageSpec], copies: Mapping[str, Copy], url: str) -> Shared:
    needed = {*(plan.target.only or (plan.asked[-1].name,)), "evaluate"}  # whose result the last line tells
    pull: dict[str, Copy] = {}
    stays: dict[str, Copy] = {}
    for spec in reversed(lacking):
        copy = copies.get(spec.name)
        if copy is None:
            needed |= set() if spec.reads else {key.stage for key in spec.inputs.values()}
        else:
            (pull if spec.name in needed else stays)[spec.name] = copy
    return Shared(url, pull, stays)


def _fits(spec: StageSpec, copy: Copy) -> bool:
    """Whether a manifest tells of the same code and inputs, which its fingerprint claims as well."""
    inputs = {name: key.fingerprint for name, key in spec.inputs.items()}
    return copy.manifest.code_version == spec.version and dict(copy.manifest.inputs) == inputs
