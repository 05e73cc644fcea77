"""Download from ModelScope through its own client, which resumes, locks and verifies.

The client writes listed paths unchecked (`../x`), accepts files without a listed digest, and succeeds if no
file matches; all three are checked here. Source: modelscope-hub 0.5.1, _download.py.
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
from stages.fetch.retry import TemporaryError, retrying
from stages.fetch.sources import MOVING, SHA256, FetchConfig

if TYPE_CHECKING:
    from modelscope_hub import HubApi

T = TypeVar("T")
Kind = Literal["model", "dataset"]
Select = Callable[[Sequence[Listed], str], list[Listed]]
FILES_AT_ONCE = 4
CLIENT_SETTINGS = {
    "MODELSCOPE_DOWNLOAD_MAX_RETRIES": "0",  # the client leaves retries of listings to its callers anyway
    "MODELSCOPE_REPO_TREE_PAGE_MAX_ATTEMPTS": "1",
    "TQDM_DISABLE": "1",
}
DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS)


def download(
    kind: Kind,
    repository: str,
    revision: str,
    select: Select,
    fetch: FetchConfig,
    work: Path,
    progress: Progress = lambda done, total: None,
) -> Downloaded:
    """Download the files that `select` chooses from the repository's listing.

    Raises:
        InputError: the hub refuses, lists unsafe paths, delivers other bytes, or stays unreachable.
    """
    downloads = directory(fetch, work)
    # the client's own layout (DownloadManager._repo_cache_dir_path), so that it shares fetch.cache_dir
    root = downloads / f"{kind}s" / repository.replace("/", "--") / "snapshots" / revision
    if fetch.offline:
        return _use_downloaded(kind, repository, revision, select, root)
    client = _client(fetch, downloads, work)
    origin = redact(f"{kind} {repository}@{revision} at {client.legacy.endpoint}")
    listed = retrying(lambda: _list_files(client, kind, repository, revision, origin), fetch, origin)
    check_paths(listed, origin)
    selected = select(listed, origin)
    check_inside(root, selected)
    paths, total = [file.path for file in selected], sum(file.size or 0 for file in selected)
    moving = " (a branch, whose content may change)" if revision in MOVING else ""
    present = bytes_here(root, paths)
    print(f"{origin}{moving}: {len(paths)} files, {total} bytes, {present} of them already here", flush=True)

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
                progress_callbacks=[_progress_callback(lambda: bytes_here(root, paths), total, progress)],
                file_list=[{"Path": f.path, "Size": f.size, "Sha256": f.sha256} for f in selected],
            ),
        )

    retrying(transfer, fetch, origin, lambda: bytes_here(root, paths))
    progress(total, total)
    return Downloaded(origin, root, verify(root, selected, origin))


def _list_files(client: HubApi, kind: Kind, repository: str, revision: str, origin: str) -> list[Listed]:
    listing = _translate_errors(origin, lambda: client.list_repo_files(repository, kind, revision=revision))
    files = []
    for file in listing:
        if not file.is_dir:
            digest = (file.sha256 or "").lower()
            size = file.size or None  # the client reports an unknown size as 0
            files.append(Listed(file.path, size, digest if SHA256.fullmatch(digest) else None))
    return files


def _use_downloaded(kind: Kind, repository: str, revision: str, select: Select, root: Path) -> Downloaded:
    """Return an earlier download; the client renames a file only when it is complete."""
    origin = f"{kind} {repository}@{revision} in {root}"
    if not root.is_dir():
        remedy = "run once with fetch.offline=false, set fetch.cache_dir to where it is, or give a path"
        raise InputError(root, None, f"fetch.offline=true, and {repository}@{revision} is not there", remedy)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    listed = [Listed(path.relative_to(root).as_posix(), None, None) for path in files]
    return Downloaded(origin, root, verify(root, select(listed, origin), origin))


def _client(fetch: FetchConfig, downloads: Path, work: Path) -> HubApi:
    for name, value in CLIENT_SETTINGS.items():
        os.environ.setdefault(name, value)
    from modelscope_hub import HubApi, HubConfig  # reads the settings when it is imported

    logger = logging.getLogger("modelscope_hub")
    logger.setLevel(logging.WARNING)
    for handler in logger.handlers:
        handler.setFormatter(_RedactingFormatter("%(levelname)s %(name)s: %(message)s"))
    # An explicit token, even an empty one, keeps the client from unpickling a stored login.
    token = os.environ.get(TOKEN_VARIABLE, "")
    config = HubConfig(endpoint=fetch.endpoint, cache_dir=downloads, config_dir=work / "client", token=token)
    return HubApi(config)


class _RedactingFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return redact(super().format(record))


def _progress_callback(received: Callable[[], int], total: int, progress: Progress) -> type[Any]:
    """Return the class that the client instantiates for each file; its threads call `update`."""
    from modelscope_hub import ProgressCallback

    lock = threading.Lock()

    class ReportBytes(ProgressCallback):
        def update(self, size: int) -> None:
            with lock:
                progress(received(), total)

    return ReportBytes


def _translate_errors(origin: str, action: Callable[[], T]) -> T:
    """Call the client; raise its errors as TemporaryError, InputError, or OSError for a full disk."""
    import requests
    from modelscope_hub import FileDownloadError, HubError

    try:
        return action()
    except FileDownloadError as error:
        failures = [_translate(origin, cause, f"{path}: ") for path, cause in error.failed_files.items()]
        lasting = [failure for failure in failures if not isinstance(failure, TemporaryError)]
        raise (lasting or failures)[0] from error
    except (HubError, requests.RequestException, ValueError, OSError) as error:
        raise _translate(origin, error) from error


def _translate(origin: str, error: BaseException, file: str = "") -> Exception:
    """Return the exception to raise for an error of the client; `file` is "NAME: " or empty."""
    import requests
    from modelscope_hub import APIError, FileIntegrityError, NetworkError, RateLimitError, ServerError

    reason = f"{file}{_first_cause(error)}"
    if isinstance(error, OSError) and error.errno in DISK_ERRORS:
        return error
    if isinstance(error, FileIntegrityError):
        rule = redact(f"{file}the bytes delivered are not the ones listed: {error.message}")
        return InputError(origin, None, rule, "choose another revision, or give the files as a path")
    if isinstance(
        error, (NetworkError, ServerError, RateLimitError, requests.ConnectionError, requests.Timeout)
    ):
        return TemporaryError(reason, getattr(error, "retry_after", None))
    status = error.status_code if isinstance(error, APIError) else None
    if status in (401, 403):
        has_token = os.environ.get(TOKEN_VARIABLE)
        remedy = f"the token in {TOKEN_VARIABLE} may not read it" if has_token else f"set {TOKEN_VARIABLE}"
        return InputError(origin, None, f"{file}access refused (HTTP {status})", remedy)
    if status == 404:
        remedy = f"check hub id, revision and fetch.endpoint; private repositories need {TOKEN_VARIABLE}"
        return InputError(origin, None, f"{file}does not exist (HTTP 404)", remedy)
    if isinstance(error, ValueError) and not isinstance(error, APIError):
        return InputError(origin, None, f"the answer is not a listing: {reason}", "check fetch.endpoint")
    return InputError(origin, None, reason, "see the stage's log")


def _first_cause(error: BaseException) -> str:
    """Return one line about the error that the client's errors wrap."""
    while error.__cause__ is not None:
        error = error.__cause__
    first_line = str(error).strip().split("\n")[0]
    return redact(f"{type(error).__name__}: {first_line}")
