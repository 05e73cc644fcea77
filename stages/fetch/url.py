"""Download of one file over HTTP; an interrupted download is resumed."""

import re
from pathlib import Path
from urllib.parse import urlsplit

import requests
from filelock import FileLock

from stages.base.errors import InputError
from stages.base.redact import redact
from stages.fetch.download import INCOMPLETE, Arrived, Downloaded, Progress, directory, sha256
from stages.fetch.retry import TemporaryError, retrying
from stages.fetch.sources import FetchConfig, FileConfig

TIMEOUTS_S = (10, 60)
"""Limits for the connection and for each read."""
BLOCK = 1 << 16
BUSY = (408, 425, 429)
UNSATISFIABLE = 416
CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


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
    target, partial = root / name, root / f"{name}{INCOMPLETE}"
    if fetch.offline and not target.is_file():
        remedy = "run once with fetch.offline=false, or give dataset.path"
        raise InputError(target, None, f"fetch.offline=true, and {origin} is not there", remedy)
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f"{name}.lock"):
        if not fetch.offline and not _is_current(target, file, fetch):
            retrying(lambda: _transfer(file, partial, progress), fetch, origin, lambda: _size(partial))
            partial.replace(target)
            _discard(partial)
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


def _transfer(file: FileConfig, partial: Path, progress: Progress) -> None:
    """Receive the rest of `partial` and check its digest."""
    resumed = _receive(file, partial, progress)
    if file.sha256 is None or (digest := sha256(partial)) == file.sha256:
        return
    _discard(partial)
    if resumed:  # two versions may have been joined
        raise TemporaryError(f"the resumed file has sha256 {digest}; starting over")
    rule = f"has sha256 {digest}, configured is {file.sha256}"
    remedy = "check the address, or set dataset.files to the new digest"
    raise InputError(redact(file.name), None, rule, remedy)


def _receive(file: FileConfig, partial: Path, progress: Progress) -> bool:
    """Append to `partial`, or replace it if the server's file has changed; return True if bytes were kept."""
    start = _size(partial)
    version = _version_file(partial).read_text("utf-8") if _version_file(partial).is_file() else ""
    headers = {"Accept-Encoding": "identity"}  # lengths and ranges count the file's own bytes
    if start and (version or file.sha256):  # else a mixture of two versions would not be noticed
        headers |= {"Range": f"bytes={start}-"} | ({"If-Range": version} if version else {})
    else:
        start = 0
    try:
        with requests.get(file.name, headers=headers, stream=True, timeout=TIMEOUTS_S) as response:
            if start and response.status_code == UNSATISFIABLE:
                if response.headers.get("Content-Range") == f"bytes */{start}":
                    return True  # an earlier attempt had received every byte
                _discard(partial)
                raise TemporaryError(f"HTTP {UNSATISFIABLE}; starting over")
            _check_status(file.name, response)
            start = _start(response, start)
            _version_file(partial).write_text(_version(response), "utf-8")
            _write(response, partial, start, progress)
    except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
        raise TemporaryError(f"{type(error).__name__}: {error}") from error
    except requests.RequestException as error:
        raise InputError(redact(file.name), None, redact(f"{type(error).__name__}: {error}")) from error
    return start > 0


def _discard(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    _version_file(partial).unlink(missing_ok=True)


def _version_file(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.version")


def _version(response: requests.Response) -> str:
    """Return the validator to send as If-Range; an empty string if there is none."""
    tag = response.headers.get("ETag", "")
    return tag if tag and not tag.startswith("W/") else response.headers.get("Last-Modified", "")


def _check_status(url: str, response: requests.Response) -> None:
    status = response.status_code
    if status in BUSY or status >= 500:
        after = response.headers.get("Retry-After", "")
        raise TemporaryError(f"HTTP {status}", float(after) if after.isdigit() else None)
    if status >= 400:
        remedy = "check the address" if status in (404, 410) else "put credentials for its host into ~/.netrc"
        raise InputError(redact(url), None, f"HTTP {status} {response.reason}", remedy)


def _start(response: requests.Response, requested: int) -> int:
    """Return the position in the file of the body's first byte; a server may ignore Range."""
    if response.status_code != 206:
        return 0
    match = CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != requested:
        raise TemporaryError("the server sent another range than requested")
    return requested


def _write(response: requests.Response, partial: Path, start: int, progress: Progress) -> None:
    length = response.headers.get("Content-Length", "")
    total = start + int(length) if length.isdigit() else 0
    with partial.open("r+b" if start else "wb") as output:
        output.seek(start)
        for block in response.iter_content(BLOCK):
            output.write(block)
            progress(output.tell(), total)
        size = output.tell()
    if total and size != total:
        raise TemporaryError(f"{size} of {total} bytes arrived")


def _size(file: Path) -> int:
    return file.stat().st_size if file.is_file() else 0
