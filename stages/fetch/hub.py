"""Download from ModelScope through its own client, which resumes, locks and verifies.

Closed here are the client's gaps: it writes listed paths unchecked (`../x`), takes no match for
success, and accepts a file without listed digest in silence. Source: modelscope-hub 0.5.1, _download.py.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from stages.base.errors import InputError
from stages.base.redact import TOKEN_VARIABLE, redact
from stages.fetch.download import Downloaded, Progress, bytes_here, directory, verify
from stages.fetch.listing import Listed, check_inside, check_paths
from stages.fetch.retry import Passing, retrying
from stages.fetch.sources import MOVING, SHA256, FetchConfig

if TYPE_CHECKING:
    from modelscope_hub import HubApi

T = TypeVar("T")
Kind = Literal["model", "dataset"]
Select = Callable[[Sequence[Listed], str], list[Listed]]
FILES_AT_ONCE = 4
CLIENT_SETTINGS = {
    "MODELSCOPE_DOWNLOAD_MAX_RETRIES": "0",  # one layer of retries, ours, which tells each
    "MODELSCOPE_REPO_TREE_PAGE_MAX_ATTEMPTS": "1",
    "TQDM_DISABLE": "1",  # bars have no place in a log
}
DISK_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)


def download(
    kind: Kind,
    repository: str,
    revision: str,
    select: Select,
    fetch: FetchConfig,
    work: Path,
    progress: Progress = lambda done, total: None,
) -> Downloaded:
    """Bring the selected files of a repository here.

    Raises:
        InputError: the hub refuses, lists what is unsafe or does not fit, or stays unreachable.
    """
    downloads = directory(fetch, work)
    # the client's own layout (DownloadManager._repo_cache_dir_path), so that a shared cache_dir is shared
    root = downloads / f"{kind}s" / repository.replace("/", "--") / "snapshots" / revision
    if fetch.offline:
        return _offline(kind, repository, revision, select, root)
    client = _client(fetch, downloads, work)
    origin = redact(f"{kind} {repository}@{revision} at {client.legacy.endpoint}")
    listed = retrying(lambda: _listing(client, kind, repository, revision, origin), fetch, origin)
    check_paths(listed, origin)
    selected = select(listed, origin)
    check_inside(root, selected)
    paths = [file.path for file in selected]
    meter = _Meter(root, selected, progress)
    moving = " (a branch: this is what it is now)" if revision in MOVING else ""
    summary = f"{len(selected)} files, {meter.total} bytes, {meter.done} of them here already"
    print(f"{origin}{moving}: {summary}", flush=True)

    def transfer() -> None:
        _translate_errors(
            origin,
            lambda: client.download_repo(
                repository,
                kind,
                revision=revision,
                cache_dir=downloads,
                local_dir=root,
                max_workers=FILES_AT_ONCE,
                progress_callbacks=[meter.callback()],
                file_list=[{"Path": f.path, "Size": f.size, "Sha256": f.sha256} for f in selected],
            ),
        )

    retrying(transfer, fetch, origin, lambda: bytes_here(root, paths))
    meter.finish()
    return Downloaded(origin, root, verify(root, selected, origin))


def _listing(client: HubApi, kind: Kind, repository: str, revision: str, origin: str) -> list[Listed]:
    listing = _translate_errors(origin, lambda: client.list_repo_files(repository, kind, revision=revision))
    files = [file for file in listing if not file.is_dir]
    digests = [(file.sha256 or "").lower() for file in files]
    return [  # the client reports an unknown size as 0; what is no SHA-256 vouches for nothing
        Listed(file.path, file.size or None, digest if SHA256.fullmatch(digest) else None)
        for file, digest in zip(files, digests, strict=True)
    ]


def _offline(kind: Kind, repository: str, revision: str, select: Select, root: Path) -> Downloaded:
    """Return what an earlier download left in `root`; the client renames a file only when it is complete."""
    origin = f"{kind} {repository}@{revision} in {root}"
    if not root.is_dir():
        remedy = "run once with fetch.offline=false, set fetch.cache_dir to where it is, or give a path"
        raise InputError(root, None, f"fetch.offline=true, and {repository}@{revision} is not there", remedy)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    listed = [Listed(path.relative_to(root).as_posix(), None, None) for path in files]
    selected = select(listed, origin)
    return Downloaded(origin, root, verify(root, selected, origin))


def _client(fetch: FetchConfig, downloads: Path, work: Path) -> HubApi:
    for name, value in CLIENT_SETTINGS.items():
        os.environ.setdefault(name, value)
    from modelscope_hub import HubApi, HubConfig

    logger = logging.getLogger("modelscope_hub")
    logger.setLevel(logging.WARNING)
    for handler in logger.handlers:
        handler.setFormatter(_Redacting("%(levelname)s %(name)s: %(message)s"))
    # An explicit token, even an empty one, keeps the client from unpickling a stored login.
    return HubApi(
        HubConfig(
            endpoint=fetch.endpoint,
            cache_dir=downloads,
            config_dir=work / "client",
            token=os.environ.get(TOKEN_VARIABLE, ""),
        )
    )


class _Redacting(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


class _Meter:
    """Bytes of all files together, told as they arrive; the client's threads call it."""

    def __init__(self, root: Path, files: Sequence[Listed], progress: Progress) -> None:
        self.total = sum(file.size or 0 for file in files)
        self.done = sum(bytes_here(root, [f.path]) for f in files if (root / f.path).is_file())
        self._progress = progress
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        with self._lock:
            self.done = max(0, self.done + count)
            self._progress(min(self.done, self.total), self.total)

    def finish(self) -> None:
        self._progress(self.total, self.total)

    def callback(self) -> type[Any]:
        """Return the progress class that the client instantiates for each try of each file."""
        from modelscope_hub import ProgressCallback

        meter = self

        class Counting(ProgressCallback):
            def __init__(self, filename: str, file_size: int) -> None:
                super().__init__(filename, file_size)
                self.counted = 0

            def update(self, size: int) -> None:
                self.counted += size
                meter.add(size)

            def end(self) -> None:
                if self.counted < self.file_size:  # it will be counted again from what is on disk
                    meter.add(-self.counted)

        return Counting


def _translate_errors(origin: str, action: Callable[[], T]) -> T:
    """Run one call of the client; its errors become Passing or InputError.

    Raises:
        Passing: the network or the server failed in a way that may pass.
        InputError: anything else that the client tells.
        OSError: the disk is full or read-only.
    """
    import requests
    from modelscope_hub import FileDownloadError, HubError

    try:
        return action()
    except FileDownloadError as error:
        failed = [_judge(origin, cause, f"{path}: ") for path, cause in error.failed_files.items()]
        lasting = [problem for problem in failed if not isinstance(problem, Passing)]
        raise (lasting or failed)[0] from error
    except (HubError, requests.RequestException, ValueError, OSError) as error:
        raise _judge(origin, error) from error


def _judge(origin: str, error: BaseException, file: str = "") -> Exception:
    """Return the exception to raise for an error of the client; `file` is "NAME: " or empty."""
    import requests
    from modelscope_hub import APIError, FileIntegrityError, NetworkError, RateLimitError, ServerError

    first = _reason(error)
    if isinstance(error, OSError) and error.errno in DISK_TROUBLE:
        return error
    if isinstance(error, FileIntegrityError):
        rule = f"{file}the bytes delivered are not the ones listed: {error.message}"
        remedy = "the hub is at fault: choose another revision, or get the files elsewhere and give a path"
        return InputError(origin, None, redact(rule), remedy)
    if isinstance(error, (NetworkError, ServerError, RateLimitError)):
        return Passing(f"{file}{first}", getattr(error, "retry_after", None))
    if isinstance(error, (requests.ConnectionError, requests.Timeout)):
        return Passing(f"{file}{first}")
    if isinstance(error, APIError):
        return _refused(origin, error.status_code, f"{file}{first}", file)
    if isinstance(error, ValueError):
        return InputError(origin, None, f"answers with what is no listing: {first}", "check fetch.endpoint")
    return InputError(origin, None, f"{file}{first}", "see the stage's log")


def _reason(error: BaseException) -> str:
    """One line about the first cause: the client wraps it in texts that say less."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = str(cause).strip().split("\n")[0]
    return redact(f"{type(cause).__name__}: {text}")


def _refused(origin: str, status: int | None, told: str, file: str) -> InputError:
    if status in (401, 403):
        held = os.environ.get(TOKEN_VARIABLE)
        remedy = f"the token in {TOKEN_VARIABLE} may not read it" if held else f"set {TOKEN_VARIABLE}"
        return InputError(origin, None, f"{file}access refused (HTTP {status})", remedy)
    if status == 404:
        remedy = "check hub id and revision, and fetch.endpoint (private ones are hidden without a token in "
        return InputError(origin, None, f"{file}does not exist (HTTP 404)", f"{remedy}{TOKEN_VARIABLE})")
    return InputError(origin, None, told, "see the stage's log")
