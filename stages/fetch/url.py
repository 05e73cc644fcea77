"""Download of one file over HTTP."""

import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import requests

from stages.base.errors import InputError
from stages.base.redact import redact
from stages.fetch.download import Arrived, Downloaded, Progress, directory, sha256
from stages.fetch.retry import TemporaryError, retrying
from stages.fetch.sources import FetchConfig, FileConfig

TIMEOUTS_S = (10, 60)
"""Limits for the connection and for each read."""
BLOCK = 1 << 16
BUSY = (408, 425, 429)


def download(
    file: FileConfig, fetch: FetchConfig, work: Path, progress: Progress = lambda done, total: None
) -> Downloaded:
    """Download the file at `file.name` and check it.

    Args:
        file: URL, and digest if known.
        fetch: offline, cache_dir and retries.
        work: scratch directory that survives a kill.
        progress: called with (bytes here, total bytes; 0 if the server does not say).

    Raises:
        InputError: the server refuses, the bytes are not those of file.sha256, or it stays unreachable.
    """
    address = urlsplit(file.name)
    origin, name = redact(file.name), Path(address.path).name or "index"
    path = address.path.strip("/").replace("/", "--")  # without the query, which may hold a secret
    root = directory(fetch, work) / "urls" / (address.hostname or "") / path
    target = root / name
    if fetch.offline and not target.is_file():
        remedy = "run once with fetch.offline=false, or give dataset.path"
        raise InputError(target, None, f"fetch.offline=true, and {origin} is not there", remedy)
    if not fetch.offline and not _is_current(target, file, fetch):
        root.mkdir(parents=True, exist_ok=True)
        retrying(lambda: _transfer(file, target, progress), fetch, origin)
    size, digest = target.stat().st_size, sha256(target)
    if file.sha256 not in (None, digest):
        raise InputError(target, None, f"has sha256 {digest}, configured is {file.sha256}", "delete it")
    if file.sha256 is None:
        print(f"{origin}: no sha256 is configured; the file's is {digest}", flush=True)
    return Downloaded(origin, root, (Arrived(name, size, digest, file.sha256 is not None),))


def _is_current(target: Path, file: FileConfig, fetch: FetchConfig) -> bool:
    if not target.is_file():
        return False
    if file.sha256 is None:  # a shared cache may hold an old version; the scratch directory cannot
        return fetch.cache_dir is None
    return sha256(target) == file.sha256


def _transfer(file: FileConfig, target: Path, progress: Progress) -> None:
    """Write the file under a temporary name, check its digest, and give it its name."""
    with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as directory:
        partial = Path(directory) / target.name
        _receive(file.name, partial, progress)
        digest = sha256(partial)
        if file.sha256 not in (None, digest):
            rule = f"has sha256 {digest}, configured is {file.sha256}"
            remedy = "check the address, or set dataset.files to the new digest"
            raise InputError(redact(file.name), None, rule, remedy)
        partial.replace(target)


def _receive(url: str, partial: Path, progress: Progress) -> None:
    try:
        with requests.get(url, stream=True, timeout=TIMEOUTS_S) as response, partial.open("wb") as output:
            _check_status(url, response)
            length = response.headers.get("Content-Length", "")
            for block in response.iter_content(BLOCK):
                output.write(block)
                progress(output.tell(), int(length) if length.isdigit() else 0)
    except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
        raise TemporaryError(f"{type(error).__name__}: {error}") from error
    except requests.RequestException as error:
        raise InputError(redact(url), None, redact(f"{type(error).__name__}: {error}")) from error


def _check_status(url: str, response: requests.Response) -> None:
    status = response.status_code
    if status in BUSY or status >= 500:
        after = response.headers.get("Retry-After", "")
        raise TemporaryError(f"HTTP {status}", float(after) if after.isdigit() else None)
    if status >= 400:
        remedy = "check the address" if status in (404, 410) else "put credentials for its host into ~/.netrc"
        raise InputError(redact(url), None, f"HTTP {status} {response.reason}", remedy)
