"""Pushing beside runs: the process that does it, one for all runs of this process, and what it tells."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Any

from pipeline.config.remote import RemoteConfig
from pipeline.run.progress import Display
from pipeline.store.store import Key, Store

_pushing: dict[tuple[int, str, str], Pushing] = {}
_saying = threading.Lock()
"""Held while a thread writes to the terminal: a fork made meanwhile would wait for its locks for ever."""
os.register_at_fork(before=_saying.acquire, after_in_parent=_saying.release, after_in_child=_saying.release)


def beside(remote: RemoteConfig, store: Store) -> Pushing:
    """The process that pushes what this process's runs commit."""
    key = (os.getpid(), str(remote.url), str(store.root))
    if key not in _pushing or not _pushing[key].lives:
        _pushing[key] = Pushing(remote, store)
    return _pushing[key]


class Pushing:
    """A process that pushes; it ends with this one, whatever ends this one."""

    def __init__(self, remote: RemoteConfig, store: Store) -> None:
        self._owner, self._settled = os.getpid(), threading.Condition()
        self._under_way: dict[str, Display] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pipeline.store.remote"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True,
        )  # fmt: skip
        where = {"url": remote.url, "endpoint": remote.endpoint, "timeout_s": remote.timeout_s}
        self._send({**where, "store": str(store.root)})
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.finish)

    @property
    def lives(self) -> bool:
        """Whether it can be asked to push."""
        return self._process.poll() is None

    def begin(self, run: str, keys: Iterable[Key], display: Display, lost: bool) -> None:
        """Push these artifacts of a run as soon as they are whole, and tell so at `display`."""
        self._under_way[run] = display
        pairs = [[key.stage, key.fingerprint] for key in keys]
        self._send({"run": run, "keys": pairs, "lost": lost})

    def refuse(self, paths: list[str]) -> None:
        """Copies that are not what they should be do not count as being there."""
        self._send({"refused": paths})

    def finish(self, run: str | None = None) -> None:
        """Wait until all that a run, or any, has committed is pushed, or cannot be."""
        if os.getpid() != self._owner:  # a fork's own runs end where they have begun
            return
        for name in [run] if run is not None else list(self._under_way):
            if name in self._under_way:
                self._send({"end": name})
                with self._settled:
                    self._settled.wait_for(lambda name=name: name not in self._under_way)  # type: ignore[misc]

    def stop(self) -> None:
        """End it at once; what is half pushed shows nowhere, and the next push goes on with it."""
        if os.getpid() == self._owner:
            self._process.kill()
            self._under_way.clear()

    def _send(self, line: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps(line) + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            values = json.loads(line)
            displays = dict(self._under_way)
            if "say" in values and displays:
                own = displays.get(values["run"])
                with _saying:
                    (own or next(iter(displays.values()))).say(values["say"], is_own=own is not None)
            if "settled" in values:
                with self._settled:
                    self._under_way.pop(values["settled"], None)
                    self._settled.notify_all()
        with self._settled:  # it has ended
            self._under_way.clear()
            self._settled.notify_all()
