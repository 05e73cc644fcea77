"""Configuration of sources and downloads; imports nothing heavy."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from stages.base.errors import Fault, Problem
from stages.base.redact import secret_in

REPOSITORY_ID = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*")
REVISION = re.compile(r"[A-Za-z0-9_][\w./+-]*")
SHA256 = re.compile(r"[0-9a-f]{64}")
MOVING = ("master", "main")
"""Default branches of ModelScope and Git; their content changes with each upload."""


@dataclass(frozen=True)
class FetchConfig:
    """Download settings. They change no content and therefore no fingerprint."""

    endpoint: str | None
    """Address of the ModelScope hub; None: $MODELSCOPE_ENDPOINT, else the client's own default."""
    cache_dir: str | None
    """Directory that keeps downloads, in the modelscope client's own layout, so that other stores and the
    client share them; artifacts then link into it. None: the stage's scratch directory."""


@dataclass(frozen=True)
class RepositoryConfig:
    """A dataset's repository on ModelScope."""

    id: str
    """owner/name."""
    revision: str
    """Commit, tag or branch."""


@dataclass(frozen=True)
class FileConfig:
    """One split's file or files at its source."""

    name: str
    """URL, or (with dataset.hub) a pattern of paths in the repository such as data/train-*.parquet."""
    sha256: str | None
    """Digest that a URL's file must have, 64 lower-case digits; None: any, and its digest is recorded."""


@dataclass(frozen=True)
class FilesConfig:
    """The splits of a dataset that is fetched."""

    train: FileConfig
    test: FileConfig | None
    """None: the source has no held-out file."""


def implied_source(path: str | None, hub: object, files: object = None) -> str:
    """Return the source of a model or dataset that names none; a path takes precedence."""
    if path is None and hub is not None:
        return "modelscope"
    return "url" if path is None and files is not None else "local"


RECORDED = "ours: configurations are recorded"


def id_fault(id: str) -> Fault:
    """Require a repository's owner/name."""
    return None if REPOSITORY_ID.fullmatch(id) else ("must be owner/name", "as in Qwen/Qwen2.5-7B")


def revision_fault(revision: str) -> Fault:
    """Require a commit, tag or branch."""
    if REVISION.fullmatch(revision) and ".." not in revision:
        return None
    return "must be a commit, tag or branch", "as in master"


def url_fault(url: str) -> tuple[str, str, str] | None:
    """Require a complete URL without a secret, because configurations are recorded.

    Return rule, remedy and what is shown of the URL.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        rule, remedy = "must be an http or https address", "begin it with https://"
        return rule, remedy, url.split("?")[0].rpartition("@")[2]
    held = "the user or password of a URL" if "@" in parts.netloc else secret_in(url)
    if held is not None:
        return f"must not hold {held}", "put it into ~/.netrc", f"…{parts.hostname}{parts.path}"
    return None


def fetch_problems(config: FetchConfig) -> Iterator[Problem]:
    """Yield a problem of the address of the hub."""
    if config.endpoint is not None and (fault := url_fault(config.endpoint)):
        rule, remedy, shown = fault
        yield Problem("fetch.endpoint", shown, rule, remedy, RECORDED)


def digest_fault(digest: str | None) -> Fault:
    """Require a SHA-256 in hexadecimal digits, or none."""
    if digest is None or SHA256.fullmatch(digest):
        return None
    return "must be 64 lower-case hexadecimal digits", "use what sha256sum prints"
