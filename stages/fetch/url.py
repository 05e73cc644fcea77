"""Download of one file over HTTP."""

import hashlib
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from stages.base.errors import InputError
from stages.base.files import file_digest
from stages.base.redact import redact
from stages.fetch.download import Arrived, Downloaded, directory
from stages.fetch.sources import FetchConfig, FileConfig

TIMEOUTS_S = (10, 60)
"""Limits for the connection and for each read."""
RETRIES = Retry(
    5, backoff_factor=0.5, status_forcelist=(408, 425, 429, 500, 502, 503, 504), raise_on_status=False
)
"""Retries of connections and of answers of busy servers, whose Retry-After is respected."""


def download(file: FileConfig, fetch: FetchConfig, work: Path) -> Downloaded:
    """Download the file at the URL `file.name` and compare it with file.sha256, if that is known.

    Raises:
        InputError: the server refuses, the bytes are not those of file.sha256, or it stays unreachable.
    """
    address = urlsplit(file.name)
    origin, name = redact(file.name), Path(address.path).name or "index"
    path = address.path.strip("/").replace("/", "--")
    if address.query:  # another query is another file; its text may hold a secret
        path += f"--{hashlib.sha256(address.query.encode()).hexdigest()[:16]}"
    root = directory(fetch, work) / "urls" / address.netloc / path
    target = root / name
    if file.sha256 is None or not target.is_file() or file_digest(target) != file.sha256:
        root.mkdir(parents=True, exist_ok=True)
        _transfer(file, target)
    size, digest = target.stat().st_size, file_digest(target)
    if file.sha256 is None:
        print(f"{origin}: no sha256 is configured; the file's is {digest}", flush=True)
    return Downloaded(origin, root, (Arrived(name, size, digest, file.sha256 is not None),))


def _transfer(file: FileConfig, target: Path) -> None:
    """Write the file under a temporary name, check its digest, and give it its name."""
    with tempfile.TemporaryDirectory(prefix=".download-", dir=target.parent) as directory:
        partial = Path(directory) / target.name
        _receive(file.name, partial)
        digest = file_digest(partial)
        if file.sha256 not in (None, digest):
            rule = f"has sha256 {digest}, configured is {file.sha256}"
            remedy = "check the address, or set dataset.files to the new digest"
            raise InputError(redact(file.name), None, rule, remedy)
        partial.replace(target)


def _receive(url: str, partial: Path) -> None:
    try:
        with requests.Session() as session:
            session.mount("http://", HTTPAdapter(max_retries=RETRIES))
            session.mount("https://", HTTPAdapter(max_retries=RETRIES))
            with session.get(url, stream=True, timeout=TIMEOUTS_S) as response, partial.open("wb") as output:
                if response.status_code >= 400:
                    rule, remedy = f"HTTP {response.status_code} {response.reason}", "check the address"
                    if response.status_code in (401, 403):
                        remedy = "put credentials for its host into ~/.netrc"
                    raise InputError(redact(url), None, rule, remedy)
                for block in response.iter_content(1 << 16):
                    output.write(block)
    except requests.RequestException as error:
        reason = redact(f"{type(error).__name__}: {error}")
        raise InputError(redact(url), None, reason, "check the address, or run again") from error
