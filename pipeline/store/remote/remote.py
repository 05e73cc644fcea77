"""Requests to one remote, on any server that fsspec supports."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import sys
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import fsspec
from fsspec.asyn import sync

from pipeline.errors import ConfigError, NotThere, Problem, RemoteError, StoreError
from pipeline.store.remote import TEMPORARY
from stages.base.redact import HIDDEN, redact

Item = TypeVar("Item")
Result = TypeVar("Result")
S3, SSH, LOCAL = ("s3", "s3a"), ("sftp", "ssh"), ("file", "local")
TRIES, PAUSE_S, CONNECT_S = 5, 0.25, 10.0
TIMEOUTS = 3
"""A request that times out this often is not tried again."""
MIN_BYTES_PER_S = 1 << 16
"""A slower transfer counts as timed out."""
FULL = (errno.ENOSPC, errno.EDQUOT)
FINAL = (*FULL, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR)
FINAL_NAMES = ("NoCredentialsError", "PartialCredentialsError", "AuthenticationException")
"""Errors that another try does not change; repeated logins may lock an account."""


@dataclass(frozen=True)
class Entry:
    """One file or directory of a listing."""

    size: int
    modified: float
    """Unix time by the remote's clock, seconds; 0 if the server does not report it."""


class Remote:
    """The files below one URL; forks of the process may use it, too."""

    def __init__(self, url: str, endpoint: str | None = None, timeout_s: float = 60.0) -> None:
        """Store the address (see pipeline/config/sections.py); raise ConfigError if a package is missing."""
        self.url, self.scheme = url.rstrip("/"), urlsplit(url).scheme
        self._endpoint, self._timeout_s = endpoint, timeout_s
        self._renames = self.scheme in (*LOCAL, *SSH)
        """Readers see files that are being written, so these are written elsewhere and renamed."""
        self._systems: dict[int, Any] = {}
        """Process id -> file system of fsspec; connections do not survive a fork."""
        try:
            self._class = fsspec.get_filesystem_class(self.scheme)
        except (ImportError, ValueError) as error:
            remedy = "pip install 'grpoflow[s3,sftp]', or choose file://, s3:// or sftp://"
            raise ConfigError([Problem("remote", url, str(error), remedy)]) from error
        root = str(self._class._strip_protocol(self.url)).rstrip("/")
        self._root = unquote(root) if self._renames else root  # fsspec does not decode %20

    def map(
        self,
        function: Callable[[Item], Result],
        items: Iterable[Item],
        on_result: Callable[[Result], object] = lambda result: None,
    ) -> list[Result]:
        """Return function(item) of every item, computed in threads; raise the first error.

        `on_result` is called in the caller's thread with each result when it is there.
        """
        self._retry("", lambda system: system)  # connects once
        pool = ThreadPoolExecutor(1 if self.scheme in SSH else 8)  # an SSH connection serves one thread
        try:
            futures = [pool.submit(function, item) for item in items]
            for future in as_completed(futures):
                on_result(future.result())
            return [future.result() for future in futures]
        finally:
            is_interrupted = isinstance(sys.exc_info()[1], KeyboardInterrupt)
            pool.shutdown(wait=not is_interrupted, cancel_futures=True)  # ^C does not wait for answers

    def list(self, path: str) -> dict[str, Entry]:
        """Return the entries directly below a directory by name; none if it does not exist."""
        with contextlib.suppress(NotThere):
            infos = self._call("ls", path, detail=True)
            return {str(info["name"]).rstrip("/").rpartition("/")[2]: _entry(info) for info in infos}
        return {}

    def files(self, path: str) -> dict[str, Entry]:
        """Return all files below a directory by their relative names; none if it does not exist."""
        start = len(f"{self._root}/{path}/")
        parent, _, directory = path.rpartition("/")
        with contextlib.suppress(NotThere):
            if self.scheme in S3:  # without a prefix, s3fs sends two more requests if there is nothing
                infos = self._call("find", parent, detail=True, prefix=f"{directory}/")
            else:
                options = {"on_error": "raise"} if self._renames else {}
                infos = self._call("find", path, detail=True, **options)
            return {name[start:]: _entry(info) for name, info in infos.items() if name[start:]}
        return {}

    def read(self, path: str) -> bytes:
        """Return the content of a small file; raise NotThere if it does not exist."""
        return bytes(self._call("cat_file", path))

    def download(self, path: str, target: Path, size: int) -> None:
        """Copy a file of `size` bytes to a local file.

        Raises:
            NotThere: it does not exist.
            StoreError: the local disk is full.
        """

        def fetch(system: Any) -> None:
            try:
                self._run(system, "get_file", f"{self._root}/{path}", str(target), size=size)
            except OSError as error:
                if error.errno in FULL:
                    raise StoreError.from_os_error(error, target) from error
                raise

        self._retry(path, fetch)

    def upload(self, source: Path, path: str) -> None:
        """Copy a local file to the remote, where it appears complete or not at all."""
        size = source.stat().st_size
        self._write(
            path, lambda system, target: self._run(system, "put_file", str(source), target, size=size)
        )

    def write(self, path: str, content: bytes) -> None:
        """Write a small file, which appears complete or not at all."""
        self._write(path, lambda system, target: self._run(system, "pipe_file", target, content))

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        with contextlib.suppress(NotThere):
            self._call("rm_file", path)

    def remove_directory(self, path: str) -> None:
        """Remove a directory if it exists; object stores have none."""
        if self._renames:
            with contextlib.suppress(NotThere):
                self._call("rm", path, recursive=True)

    def _write(self, path: str, send: Callable[[Any, str], None]) -> None:
        target, temporary = (f"{self._root}/{name}" for name in (path, f"{TEMPORARY}/{uuid.uuid4().hex}"))

        def send_and_rename(system: Any) -> None:
            for file in (temporary, target):
                system.makedirs(file.rpartition("/")[0], exist_ok=True)
            try:
                send(system, temporary)
                if self.scheme in LOCAL:
                    with open(temporary, "rb") as written:
                        os.fsync(written.fileno())
                system.mv(temporary, target)
            except Exception:
                with contextlib.suppress(Exception):
                    system.rm_file(temporary)
                raise

        request = send_and_rename if self._renames else lambda system: send(system, target)
        with contextlib.suppress(NotThere):  # a gc may have just removed the directory
            return self._retry(path, request)
        try:
            self._retry(path, request)
        except NotThere as error:
            rule = "no such bucket or directory, or you may not access it"
            raise RemoteError(f"{self.url}: {rule}; create it or choose another remote=URL") from error

    def _call(self, method: str, path: str, *values: Any, **options: Any) -> Any:
        full = f"{self._root}/{path}".rstrip("/")
        return self._retry(path, lambda system: self._run(system, method, full, *values, **options))

    def _run(self, system: Any, method: str, *values: Any, size: int = 0, **options: Any) -> Any:
        """Call a method of a file system; limit its duration if the file system is asynchronous."""
        if not system.async_impl:
            return getattr(system, method)(*values, **options)
        limit_s = self._timeout_s + size / MIN_BYTES_PER_S
        return sync(system.loop, getattr(system, f"_{method}"), *values, timeout=limit_s, **options)

    def _retry(self, path: str, request: Callable[[Any], Result]) -> Result:
        """Return the result of a request; repeat it after errors that may pass."""
        timeouts = 0
        for number in range(TRIES):
            if number > 0:
                time.sleep(PAUSE_S * 2**number * random.uniform(0.5, 1.5))  # noqa: S311
            try:
                return request(self._system())
            except FileNotFoundError as error:
                raise NotThere(f"{self.url}/{path}: does not exist") from error
            except StoreError:  # of this machine
                raise
            except Exception as error:  # every file system has its own
                if self.scheme in SSH or isinstance(error, PermissionError):
                    self._systems.pop(os.getpid(), None)  # connect again: credentials may have been renewed
                problem = error
                timeouts += "Timeout" in type(error).__name__
                is_refused = isinstance(error, PermissionError) or type(error).__name__ in FINAL_NAMES
                if timeouts == TIMEOUTS or is_refused or getattr(error, "errno", None) in FINAL:
                    break
        # The cause is dropped, because it may show secrets.
        raise RemoteError(f"{self.url}: {_describe(problem)}") from None

    def _system(self) -> Any:
        process = os.getpid()
        if process not in self._systems:
            options = {**self._class._get_kwargs_from_urls(self.url), "skip_instance_cache": True}
            if self.scheme in SSH:
                from pipeline.store.remote.sftp import connect

                self._systems[process] = connect(self._class, options, self._timeout_s)
            else:
                options |= self._s3_options() if self.scheme in S3 else {}
                self._systems[process] = self._class(**options, use_listings_cache=False)
                if self.scheme in S3:  # loads modules before time limits begin; sends nothing
                    self._systems[process].connect()
        return self._systems[process]

    def _s3_options(self) -> dict[str, Any]:
        config = {
            "retries": {"total_max_attempts": 1},
            "connect_timeout": min(self._timeout_s, CONNECT_S),
            "read_timeout": self._timeout_s,
            # OBS and older servers know no other checksums; downloads are compared with SHA-256 anyway
            "request_checksum_calculation": "when_required",
            "response_checksum_validation": "when_required",
        }
        return {"endpoint_url": self._endpoint, "config_kwargs": config, "max_concurrency": 1}


def _entry(info: dict[str, Any]) -> Entry:
    modified = info.get("LastModified") or info.get("mtime") or info.get("updated") or 0.0
    seconds = modified.timestamp() if isinstance(modified, datetime) else float(modified)
    return Entry(int(info.get("size") or 0), seconds)


def _describe(error: Exception) -> str:
    """Return an error in one line, without credentials that a server may repeat."""
    text = getattr(error, "strerror", None) or str(error).partition("\n")[0]
    text = text or f"no answer ({type(error).__name__})"
    if key_id := os.environ.get("AWS_ACCESS_KEY_ID"):
        text = text.replace(key_id, HIDDEN)
    remedy = "; free space there: `grpoflow gc --remote`" if getattr(error, "errno", None) in FULL else ""
    return redact(text)[:300] + remedy
