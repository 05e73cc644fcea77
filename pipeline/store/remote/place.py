"""One remote: a few operations on the objects below a URL, the same for whatever fsspec knows."""

from __future__ import annotations

import builtins
import contextlib
import errno
import importlib.util
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pipeline.errors import ConfigError, NotThere, Problem, RemoteError
from pipeline.store.remote.asking import Patience

Asked = TypeVar("Asked")
Told = TypeVar("Told")
NEEDED = {
    "s3": ("botocore", "s3"),
    "s3a": ("botocore", "s3"),
    "sftp": ("paramiko", "sftp"),
    "ssh": ("paramiko", "sftp"),
}
"""Scheme -> package, and our extra that brings it."""
S3_SCHEMES = ("s3", "s3a")
RENAMED = ("file", "local", "sftp", "ssh")
"""Where a reader could see half of a file that is still being written."""


@dataclass(frozen=True)
class Entry:
    """What a listing tells of an object."""

    size: int
    modified: float
    """Unix time by the remote's clock, seconds."""
    is_directory: bool


class Place:
    """What lies below one URL. Any thread, and a fork of the process, may use it."""

    def __init__(self, url: str, endpoint: str | None = None, timeout_s: float = 60.0) -> None:
        """Nothing is opened yet.

        Args:
            url: file:///DIR, s3://BUCKET/PREFIX, sftp://[USER@]HOST[:PORT]/DIR, …; without a password.
            endpoint: address of another server that speaks S3; None: what the environment says.
            timeout_s: after which one request is given up.

        Raises:
            ConfigError: a package that its scheme needs is not installed, or fsspec does not know it.
        """
        self.url, self._endpoint = url.rstrip("/"), endpoint
        self._patience = Patience(self.url, timeout_s)
        self.scheme = urlsplit(url).scheme
        package, extra = NEEDED.get(self.scheme, ("fsspec", ""))
        if importlib.util.find_spec(package) is None:
            raise ConfigError(
                [Problem("remote", url, f"needs {package}", f"pip install 'grpoflow[{extra}]'")]
            )
        self._opened: dict[tuple[int, int], Any] = {}
        self._opening: dict[tuple[int, int], threading.Lock] = {}
        self._root = str(self._class()._strip_protocol(self.url)).rstrip("/")

    def briefly(self) -> Place:
        """The same for who can do without an answer, and does not wait half a minute for one."""
        place = Place(self.url, self._endpoint)
        place._patience = self._patience.briefly()
        return place

    def tell(self, tell: Callable[[str], None]) -> None:
        """Let somebody hear, once, that the remote has not answered yet."""
        self._patience.tell = tell

    @property
    def workers(self) -> int:
        """Requests that may be under way at once; a connection each over ssh, of which servers allow few."""
        return 4 if self.scheme in RENAMED else 8

    @contextlib.contextmanager
    def threads(self) -> Iterator[ThreadPoolExecutor]:
        """Threads for requests; who presses ^C does not wait for answers that are still to come."""
        pool = ThreadPoolExecutor(self.workers)
        try:
            yield pool
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
        pool.shutdown()

    def map(self, function: Callable[[Asked], Told], items: Iterable[Asked]) -> builtins.list[Told]:
        """What a function tells of each item, several at a time; after one has failed, no other is begun."""
        failed = threading.Event()

        def each(item: Asked) -> Told:
            if failed.is_set():
                raise RemoteError(f"{self.url}: is not asked any more")  # never seen: the first error is
            try:
                return function(item)
            except BaseException:
                failed.set()
                raise

        with self.threads() as pool:
            return [*pool.map(each, items)]

    def list(self, path: str) -> dict[str, Entry]:
        """What lies directly below a path, by name; nothing where there is nothing.

        Raises:
            RemoteError: the remote does not answer.
        """
        try:
            found = self._ask("ls", path, detail=True)
        except FileNotFoundError:
            return {}
        named = {str(info["name"]).rstrip("/").rpartition("/")[2]: info for info in found}
        return {
            name: Entry(int(info.get("size") or 0), _modified(info), info.get("type") == "directory")
            for name, info in named.items()
            if not name.startswith(".")
        }

    def get(self, path: str, start: int, end: int) -> bytes:
        """Bytes `start` to `end` of an object.

        Raises:
            NotThere: it is not there.
            RemoteError: the remote does not answer, or has fewer.
        """

        def whole(content: bytes) -> bytes:
            if len(content) != end - start:
                raise OSError(errno.EIO, f"{len(content)} bytes came of {end - start}")
            return content

        try:
            return bytes(self._ask("cat_file", path, start=start, end=end, check=whole))
        except FileNotFoundError as error:
            raise NotThere(f"{self.url}/{path}: is not there") from error

    def read(self, path: str) -> bytes:
        """All of a small object.

        Raises:
            NotThere: it is not there.
            RemoteError: the remote does not answer.
        """
        try:
            return bytes(self._ask("cat_file", path))
        except FileNotFoundError as error:
            raise NotThere(f"{self.url}/{path}: is not there") from error

    def put(self, path: str, content: bytes) -> None:
        """Write an object, which appears as a whole or not at all.

        Raises:
            RemoteError: it could not be written.
        """
        try:
            self._ask("pipe_file", path, content)
        except FileNotFoundError as error:
            rule = "has no such bucket or directory, or you may not see it"
            raise RemoteError(f"{self.url}: {rule}; make it, or choose another remote=URL") from error

    def remove(self, path: str) -> None:
        """Remove an object, if it is there.

        Raises:
            RemoteError: the remote does not answer.
        """
        with contextlib.suppress(FileNotFoundError):
            self._ask("rm_file", path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory, where there are any."""
        if self.scheme in RENAMED:
            with contextlib.suppress(OSError, RemoteError):
                self._ask("rmdir", path)

    def now(self) -> float:
        """The remote's own time, seconds: clocks here and there may differ.

        Raises:
            RemoteError: the remote does not answer, or tells no times.
        """
        name = f"clock-{uuid.uuid4().hex}"
        self.put(f"clocks/{name}", b"?")
        try:
            now = self.list("clocks")[name].modified
        finally:
            self.remove(f"clocks/{name}")
        if not now:
            raise RemoteError(f"{self.url}: tells no times of its objects")
        return now

    def _ask(
        self,
        name: str,
        path: str,
        *values: Any,
        check: Callable[[Any], Any] = lambda answer: answer,
        **named: Any,
    ) -> Any:
        """Call a method of fsspec's, again where that may help."""
        return self._patience.ask(
            lambda: check(self._call(self._system(), name, f"{self._root}/{path}", *values, **named)),
            self._forget,
        )

    def _forget(self, error: Exception) -> None:
        """Open it anew next time: a broken connection stays broken, credentials may be renewed in a file."""
        if self.scheme in ("sftp", "ssh") or isinstance(error, PermissionError):
            self._opened.pop(self._place_of_system(), None)

    def _call(self, system: Any, name: str, path: str, *values: Any, **named: Any) -> Any:
        if name == "pipe_file" and self.scheme in RENAMED:
            return self._write_and_rename(system, path, *values)
        if not system.async_impl:
            return getattr(system, name)(path, *values, **named)
        from fsspec.asyn import sync

        method = getattr(system, f"_{name}")
        return sync(system.loop, method, path, *values, timeout=self._patience.timeout_s, **named)

    def _write_and_rename(self, system: Any, path: str, content: bytes) -> None:
        directory, _, name = path.rpartition("/")
        system.makedirs(directory, exist_ok=True)
        temporary = f"{directory}/.{name}.{uuid.uuid4().hex[:8]}"
        try:
            with system.open(temporary, "wb") as file:
                file.write(content)
                if self.scheme in ("file", "local"):
                    file.flush()
                    os.fsync(file.fileno())
            system.mv(temporary, path)
        except Exception:
            with contextlib.suppress(Exception):
                system.rm_file(temporary)
            raise

    def _place_of_system(self) -> tuple[int, int]:
        """Connections over ssh belong to a thread, all others to a process."""
        return os.getpid(), threading.get_ident() if self.scheme in ("sftp", "ssh") else 0

    def _system(self) -> Any:
        where = self._place_of_system()
        with self._opening.setdefault(where, threading.Lock()):  # a fork's parent may hold its own
            if where not in self._opened:
                self._opened[where] = self._open()
            return self._opened[where]

    def _open(self) -> Any:
        kind = self._class()
        options: dict[str, Any] = {"skip_instance_cache": True}
        if self.scheme in S3_SCHEMES:
            options |= {
                "endpoint": self._endpoint,
                "timeout_s": self._patience.timeout_s,
                "connections": self.workers,
            }
        elif self.scheme in ("sftp", "ssh"):
            options["timeout"] = self._patience.timeout_s
        else:
            options["use_listings_cache"] = False
        return kind(**kind._get_kwargs_from_urls(self.url), **options)

    def _class(self) -> Any:
        import fsspec

        if self.scheme in ("sftp", "ssh"):
            from pipeline.store.remote.sftp import known_hosts

            return known_hosts()
        if self.scheme in S3_SCHEMES:
            from pipeline.store.remote.s3 import S3

            return S3
        try:
            return fsspec.get_filesystem_class(self.scheme)
        except (ImportError, ValueError) as error:
            raise ConfigError([Problem("remote", self.url, str(error))]) from error


def _modified(info: dict[str, Any]) -> float:
    """When an object was written; 0 where a back end does not tell."""
    value = info.get("LastModified") or info.get("mtime") or info.get("created") or 0.0
    return value.timestamp() if isinstance(value, datetime) else float(value)
