"""All sections of a run's configuration as one typed object, and the section `remote`."""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from textwrap import shorten
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from annotated_types import Ge

from launch.config import LauncherConfig
from pipeline.config.grammar import word
from pipeline.errors import Problem
from stages.base.bounds import Positive, PositiveFloat
from stages.base.identity import NotInIdentity
from stages.base.redact import redact, secret_in
from stages.sections import Sections

FORM = "must be a URL: file:///DIR, s3://BUCKET/PREFIX, sftp://[USER@]HOST/DIR"
SECRET = "holds a password or a query, which histories would show"  # noqa: S105
REMEDY = "put credentials into the environment or the cloud's own files"
OUTSIDE = "put it into the environment or ~/.netrc"


@dataclass(frozen=True)
class RemoteConfig:
    """Remote from which artifacts are pulled instead of being built, and to which new ones are pushed."""

    url: str | None
    """file:///DIR, s3://BUCKET/PREFIX, sftp://[USER@]HOST[:PORT]/DIR, or another URL of fsspec; null: none.
    remote=URL means the same; default $GRPOFLOW_REMOTE."""
    push: Literal["on", "off", "stages"]
    """Which artifacts a run pushes: all that it builds, none, or those of `stages`."""
    stages: tuple[str, ...]
    """Stages for push=stages; by default those that need no accelerator."""
    endpoint: str | None
    """Address of an S3 server other than AWS; null: taken from the environment or ~/.aws/config."""
    timeout_s: PositiveFloat
    """Time limit of a request in seconds; a request is tried five times, or three times if it times out."""
    grace_days: Annotated[float, Ge(0)]
    """Age in days, by the remote's clock, below which `gc --remote` deletes no artifact."""

    def pushes(self, stage: str) -> bool:
        """Return True if a run pushes the artifact of a stage."""
        return self.push == "on" or (self.push == "stages" and stage in self.stages)


@dataclass(frozen=True)
class SweepConfig:
    """Section `sweep`: early stop of trainings of `grpoflow sweep`. It changes no artifact and no run."""

    stop: Literal["asha"] | None
    """asha: stop trainings that fall behind, by asynchronous successive halving on `validation_accuracy`
    (arXiv:1810.05934). null: train all points to the end."""
    reduction_factor: Annotated[int, Ge(2)]
    """eta: at a rung a training goes on if it is among the best 1/eta of those that have reached it so far.
    Rungs are the checks first_check, first_check · eta, first_check · eta², …"""
    first_check: Positive
    """Which check of train.validate_every is the first rung; later: bad starts get more time to recover."""


@dataclass(frozen=True)
class Config(Sections):
    """Configuration of a run: the sections that stages read, and store, cards, launcher, remote and sweep."""

    store: Annotated[str, NotInIdentity()]
    """Directory of the artifacts; default ./store or $GRPOFLOW_STORE."""
    cards: Positive
    """Number of workers of the grpo stage; null for as many as layout.train occupies."""
    launcher: Annotated[LauncherConfig, NotInIdentity()]
    remote: Annotated[RemoteConfig, NotInIdentity()]
    sweep: Annotated[SweepConfig, NotInIdentity()]

    def plain(self) -> dict[str, Any]:
        """Return plain data with normalised types, which is fingerprinted and passed to stages."""
        return asdict(self)


def quote_address(override: str) -> str:
    """Return remote=URL in Hydra's grammar, which has no other way to set a group to a value."""
    key, _, url = override.partition("=")
    key = "remote.url" if key == "remote" else key
    if key not in ("remote.url", "remote.endpoint") or "://" not in url:
        return override
    address = word(url.strip("'\""))
    return f"{key}={address}"


def secret_problems(values: Any, path: str = "") -> Iterator[Problem]:
    """Yield a problem for each text of a composed configuration that holds a secret, without showing it.

    Configurations are recorded in histories, manifests and model cards. The addresses of section `remote`
    have a rule of their own.
    """
    if isinstance(values, dict):
        for key, value in values.items():
            inner = f"{path}.{key}" if path else str(key)
            if inner not in ("remote.url", "remote.endpoint"):
                yield from secret_problems(value, inner)
    elif isinstance(values, (list, tuple)):
        for index, value in enumerate(values):
            yield from secret_problems(value, f"{path}[{index}]")
    elif isinstance(values, str) and (held := secret_in(values)):
        shown = shorten(redact(values), 80)
        yield Problem(path, shown, f"must not hold {held}, because configurations are recorded", OUTSIDE)


def remote_problems(section: Any) -> Iterator[Problem]:
    """Yield the problems of a composed section's addresses, without showing passwords."""
    values = section if isinstance(section, dict) else {}
    for key, value in (("remote", values.get("url")), ("remote.endpoint", values.get("endpoint"))):
        if not isinstance(value, str) or not value:
            continue
        try:
            parts = urlsplit(value)
        except ValueError:
            yield Problem(key, None, FORM)
            continue
        has_user = parts.username is not None and not parts.scheme.startswith(("sftp", "ssh"))
        if redact(value) != value or parts.query or has_user:
            yield Problem(key, f"{parts.scheme}://…", SECRET, REMEDY)
        elif key == "remote.endpoint" and parts.scheme not in ("http", "https"):
            yield Problem(key, value, "must be an address with http:// or https://")
        elif not re.fullmatch(r"(?!.*://.*://)[a-z][a-z0-9+.-]*://[^\s#]([^\n#]*[^\s#])?", value) or (
            parts.scheme == "file" and parts.netloc
        ):
            yield Problem(key, value, FORM)
