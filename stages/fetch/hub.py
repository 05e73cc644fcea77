"""Download from ModelScope through its own client, which resumes, retries, locks and verifies.

The client writes listed paths unchecked (`../x`), accepts files without a listed digest, and succeeds if no
file matches; all three are checked here. Source: modelscope-hub 0.5.1, _download.py.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from stages.base.context import Progress
from stages.base.errors import InputError
from stages.base.redact import TOKEN_VARIABLE, redact
from stages.fetch.download import Downloaded, directory, verify
from stages.fetch.listing import Listed, check_inside, check_paths
from stages.fetch.sources import SHA256, FetchConfig

if TYPE_CHECKING:
    from modelscope_hub import HubApi

Kind = Literal["model", "dataset"]
Select = Callable[[Sequence[Listed], str], list[Listed]]


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

    Raise InputError if the hub refuses, lists unsafe paths, delivers other bytes, or stays unreachable.
    """
    from modelscope_hub import HubError
    from requests import RequestException

    downloads = directory(fetch, work)
    # the client's own layout (DownloadManager._repo_cache_dir_path), so that it shares fetch.cache_dir
    root = downloads / f"{kind}s" / repository.replace("/", "--") / "snapshots" / revision
    client = _client(fetch, downloads, work)
    origin = redact(f"{kind} {repository}@{revision} at {client.legacy.endpoint}")
    try:
        listed = _list_files(client, kind, repository, revision)
        check_paths(listed, origin)
        selected = select(listed, origin)
        check_inside(root, selected)
        total = sum(file.size or 0 for file in selected)
        present = sum(file.size or 0 for file in selected if (root / file.path).is_file())
        print(f"{origin}: {len(selected)} files, {total} bytes", flush=True)
        client.download_repo(
            repository,
            kind,
            revision=revision,
            cache_dir=downloads,
            local_dir=root,
            progress_callbacks=[_progress_callback(present, total, progress)],
            file_list=[{"Path": file.path, "Size": file.size, "Sha256": file.sha256} for file in selected],
        )
    except (HubError, RequestException, ValueError) as error:
        raise _translate(origin, error) from error
    progress(total, total)
    return Downloaded(origin, root, verify(root, selected, origin))


def _list_files(client: HubApi, kind: Kind, repository: str, revision: str) -> list[Listed]:
    files = []
    for file in client.list_repo_files(repository, kind, revision=revision):
        if not file.is_dir:
            digest = (file.sha256 or "").lower()
            size = file.size or None  # the client reports an unknown size as 0
            files.append(Listed(file.path, size, digest if SHA256.fullmatch(digest) else None))
    return files


def _client(fetch: FetchConfig, downloads: Path, work: Path) -> HubApi:
    os.environ.setdefault("TQDM_DISABLE", "1")
    from modelscope_hub import HubApi, HubConfig  # reads the variable when it is imported

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


def _progress_callback(received: int, total: int, progress: Progress) -> type[Any]:
    """Return the class that the client instantiates for each file; its threads call `update`."""
    from modelscope_hub import ProgressCallback

    lock = threading.Lock()

    class ReportBytes(ProgressCallback):
        def update(self, size: int) -> None:
            nonlocal received
            with lock:
                received += size
                progress(min(received, total), total)

    return ReportBytes


def _translate(origin: str, error: BaseException) -> Exception:
    """Return the exception to raise for an error of the client."""
    from modelscope_hub import FileDownloadError, HubError

    if isinstance(error, FileDownloadError):
        path, error = next(iter(error.failed_files.items()))
        origin = f"{origin}: {path}"
    if isinstance(error, OSError) and error.errno and not isinstance(error, HubError):
        return error  # a full or read-only disk
    status = getattr(error, "status_code", None)
    if status in (401, 403):
        has_token = os.environ.get(TOKEN_VARIABLE)
        remedy = f"the token in {TOKEN_VARIABLE} may not read it" if has_token else f"set {TOKEN_VARIABLE}"
        return InputError(origin, None, f"access refused (HTTP {status})", remedy)
    if status == 404:
        remedy = f"check hub id, revision and fetch.endpoint; private repositories need {TOKEN_VARIABLE}"
        return InputError(origin, None, "does not exist (HTTP 404)", remedy)
    while error.__cause__ is not None:  # the client's errors wrap the one that says why
        error = error.__cause__
    reason = redact(f"{type(error).__name__}: {error}".strip().split("\n")[0])
    return InputError(origin, None, reason, "check fetch.endpoint, or run again: complete files stay")
