"""Section `remote`: a store that others share."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from pipeline.errors import Problem
from stages.base.bounds import PositiveFloat

FORM = "must be a URL: file:///DIR, s3://BUCKET/PREFIX, sftp://[USER@]HOST/DIR"
SECRET = "holds a password or a query, which histories would show"  # noqa: S105
ENVIRONMENT = "credentials belong into the environment or the cloud's own files"


@dataclass(frozen=True)
class RemoteConfig:
    """Where artifacts are looked for before they are built, and pushed to after."""

    url: str | None
    """file:///DIR, s3://BUCKET/PREFIX, sftp://[USER@]HOST[:PORT]/DIR, or what else fsspec knows; null: none.
    remote=URL says the same; default $GRPOFLOW_REMOTE."""
    push: Literal["on", "off", "stages"]
    """What a run pushes of the artifacts that it commits: all, none, or those of `stages`."""
    stages: tuple[str, ...]
    """Pushed with push=stages; by default what is prepared without a card."""
    endpoint: str | None
    """Address of another server that speaks S3; null: what the environment or ~/.aws/config says."""
    timeout_s: PositiveFloat
    """Seconds after which one request, of 8 MiB at most, is given up. It is tried twice, and up to 5 times
    where an error comes sooner. A run asks what is there, and whether a remote is back, twice for 15 s at
    most, and goes on where nobody answers."""

    def pushes(self, stage: str) -> bool:
        """Whether a run pushes what it commits of a stage."""
        return self.push == "on" or (self.push == "stages" and stage in self.stages)


def as_override(override: str) -> str:
    """`remote=URL` as Hydra's grammar wants it, which knows groups' choices only; others as they are."""
    key, _, url = override.partition("=")
    key = "remote.url" if key == "remote" else key
    if key not in ("remote.url", "remote.endpoint") or "://" not in url:
        return override
    quoted = url.strip("'\"").replace("\\", "\\\\").replace("'", "\\'")
    return f"{key}='{quoted}'"


def problems(section: Any) -> Iterator[Problem]:
    """What is wrong with the addresses of a composed section; a password in one is not told again."""
    values = section if isinstance(section, dict) else {}
    for key, value in (("remote", values.get("url")), ("remote.endpoint", values.get("endpoint"))):
        if not isinstance(value, str) or not value:
            continue
        try:
            parts = urlsplit(value)
        except ValueError:
            yield Problem(key, None, FORM)
            continue
        named = parts.username is not None and not parts.scheme.startswith(("sftp", "ssh"))
        if parts.password is not None or parts.query or named:
            yield Problem(key, f"{parts.scheme}://…", SECRET, ENVIRONMENT)
        elif key == "remote.endpoint" and parts.scheme not in ("http", "https"):
            yield Problem(key, value, "must be an address with http:// or https://")
        elif not re.fullmatch(r"[a-z][a-z0-9+.-]*://[^\s#]([^\n#]*[^\s#])?", value) or (
            parts.scheme == "file" and parts.netloc
        ):
            yield Problem(key, value, FORM)
