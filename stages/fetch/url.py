"""Download one plain file over HTTP, resuming what an earlier attempt left."""

import json
import re
from pathlib import Path
from urllib.parse import urlsplit

import requests
from filelock import FileLock

from stages.base.errors import InputError
from stages.base.redact import redact
from stages.fetch.download import INCOMPLETE, Arrived, Downloaded, Progress, directory, sha256
from stages.fetch.retry import Passing, retrying
from stages.fetch.sources import FetchConfig, FileConfig

CONNECT_S, READ_S = 10, 60
BLOCK = 1 << 16  # a connection that breaks off loses what has arrived of a block
BUSY = (408, 425, 429)
UNSATISFIABLE = 416
CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


def download(
    file: FileConfig, fetch: FetchConfig, work: Path, progress: Progress = lambda done, total: None
) -> Downloaded:
    """Bring the file at `file.name` here and check it.

    Args:
        file: its address, and its digest if known.
        fetch: offline, cache_dir and retries.
        work: scratch that survives a kill.
        progress: called with (bytes here, bytes in all; 0 where the server does not say).

    Raises:
        InputError: the server refuses, the bytes are not those of file.sha256, or it stays unreachable.
    """
    address = urlsplit(file.name)
    origin, name = redact(file.name), Path(address.path).name or "index"
    # host and path are kept readable; a query may hold what must not be shown, so it only names by digest
    root = (
        directory(fetch, work)
        / "urls"
        / (address.hostname or "")
        / address.path.strip("/").replace("/", "--")
    )
    target, partial = root / name, root / f"{name}{INCOMPLETE}"
    if fetch.offline and not target.is_file():
        remedy = "run once with fetch.offline=false, or give dataset.path"
        raise InputError(target, None, f"fetch.offline=true, and {origin} is not there", remedy)
    root.mkdir(parents=True, exist_ok=True)
    with FileLock(root / f"{name}.lock"):
        if not fetch.offline and _is_wanting(target, file, fetch):
            retrying(lambda: _transfer(file, partial, progress), fetch, origin, lambda: _size(partial))
            partial.replace(target)
            _forget(partial)
        size, digest = target.stat().st_size, sha256(target)
    if file.sha256 not in (None, digest):
        raise InputError(target, None, f"has sha256 {digest}, configured is {file.sha256}", "delete it")
    if file.sha256 is None:
        print(f"{origin}: no sha256 is configured; digested as it is: {digest}", flush=True)
    return Downloaded(origin, root, (Arrived(name, size, digest, file.sha256 is not None),))


def _is_wanting(target: Path, file: FileConfig, fetch: FetchConfig) -> bool:
    if not target.is_file():
        return True
    if file.sha256 is None:  # a shared cache may hold an old version; our own scratch is of this attempt
        return fetch.cache_dir is not None
    return sha256(target) != file.sha256


def _transfer(file: FileConfig, partial: Path, progress: Progress) -> None:
    """One try: go on with `partial` where it ends, if the server still has the same file."""
    resumed = _size(partial) > 0
    _request(file, partial, progress)
    if file.sha256 is None:
        return
    digest = sha256(partial)
    if digest == file.sha256:
        return
    _forget(partial)
    if resumed:  # two versions may have been joined
        _request(file, partial, progress)
        digest = sha256(partial)
        if digest == file.sha256:
            return
        _forget(partial)
    rule = f"has sha256 {digest}, configured is {file.sha256}"
    raise InputError(
        redact(file.name), None, rule, "check the address, or set dataset.files to the new digest"
    )


def _request(file: FileConfig, partial: Path, progress: Progress) -> None:
    url, validator = file.name, partial.with_name(f"{partial.name}.json")
    start, condition = _size(partial), _if_unchanged(validator)
    headers = {"Accept-Encoding": "identity"}  # lengths and ranges count the file's own bytes
    if start and (condition or file.sha256):  # otherwise nothing would tell a joint of two versions
        headers |= {"Range": f"bytes={start}-", **condition}
    else:
        start = 0
    try:
        with requests.get(url, headers=headers, stream=True, timeout=(CONNECT_S, READ_S)) as response:
            if start and response.status_code == UNSATISFIABLE:
                if response.headers.get("Content-Range") == f"bytes */{start}":
                    return  # an earlier attempt had received every byte
                _forget(partial)
                raise Passing(f"HTTP {UNSATISFIABLE}: starting over")
            _check_status(url, response)
            start = _start(response, start)
            total = _total(response, start)
            seen = {name: response.headers.get(name) for name in ("ETag", "Last-Modified")}
            validator.write_text(json.dumps(seen), encoding="utf-8")
            with partial.open("r+b" if start else "wb") as output:
                output.seek(start)
                for block in response.iter_content(BLOCK):
                    output.write(block)
                    progress(output.tell(), total)
                here = output.tell()
    except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
        raise Passing(f"{type(error).__name__}: {error}") from error
    except requests.RequestException as error:
        raise InputError(redact(url), None, redact(f"{type(error).__name__}: {error}")) from error
    if total and here != total:
        raise Passing(f"{here} of {total} bytes arrived")


def _if_unchanged(validator: Path) -> dict[str, str]:
    """Return headers with which the server sends the complete file if it has changed."""
    try:
        seen = json.loads(validator.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    tag = seen.get("ETag") or ""
    value = seen.get("Last-Modified") if not tag or tag.startswith("W/") else tag
    return {"If-Range": value} if value else {}


def _check_status(url: str, response: requests.Response) -> None:
    status = response.status_code
    if status in BUSY or status >= 500:
        after = response.headers.get("Retry-After", "")
        raise Passing(f"HTTP {status}", float(after) if after.isdigit() else None)
    if status >= 400:
        remedy = "check the address" if status in (404, 410) else "credentials for its host go into ~/.netrc"
        raise InputError(redact(url), None, f"HTTP {status} {response.reason}", remedy)


def _start(response: requests.Response, requested: int) -> int:
    """Return the position in the file at which the body begins: a server may ignore Range."""
    if response.status_code != 206:
        return 0
    match = CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if match is None or int(match[1]) != requested:
        raise Passing("answers with another part of the file than was asked for")
    return requested


def _total(response: requests.Response, start: int) -> int:
    """Size of the whole file; 0: unknown."""
    match = CONTENT_RANGE.match(response.headers.get("Content-Range", ""))
    if match and match[2] != "*":
        return int(match[2])
    length = response.headers.get("Content-Length", "")
    return start + int(length) if length.isdigit() else 0


def _forget(partial: Path) -> None:
    partial.unlink(missing_ok=True)
    partial.with_name(f"{partial.name}.json").unlink(missing_ok=True)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
