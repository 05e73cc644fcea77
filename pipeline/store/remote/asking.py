"""Asking a remote again where that may help, for as long as somebody waits, and telling of its silence."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from pipeline.errors import RemoteError

Answer = TypeVar("Answer")
TRIES = 5
PAUSE_S = 0.3
BRIEF_TRIES, BRIEF_S = 2, 15.0
SILENT_TRIES = 2
"""Requests may end without an answer as often; what is answered with an error is tried `TRIES` times."""
TELL_S = 5.0
FINAL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR})
"""What trying again does not mend."""
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")


@dataclass
class Patience:
    """How often and how long one remote is asked. Any thread may ask."""

    url: str
    timeout_s: float = 60.0
    """After which one request is given up."""
    tries: int = TRIES
    tell: Callable[[str], None] = lambda text: None
    """Hears that the remote has not answered yet."""
    _telling_over: bool = False

    def briefly(self) -> Patience:
        """For who can do without an answer, and does not wait half a minute for one."""
        return Patience(self.url, min(self.timeout_s, BRIEF_S), BRIEF_TRIES, self.tell)

    def ask(self, request: Callable[[], Answer], on_failure: Callable[[Exception], None]) -> Answer:
        """Make a request, again where that may help.

        Args:
            request: asks; each of fsspec's back ends raises errors of its own.
            on_failure: hears of each failed try.

        Raises:
            FileNotFoundError: the remote answers that it is not there.
            RemoteError: it does not answer, or with errors only.
        """
        last: Exception | None = None
        began = time.monotonic()
        for number in range(self.tries):
            if number:
                if time.monotonic() - began >= SILENT_TRIES * self.timeout_s:
                    break
                time.sleep(PAUSE_S * 3 ** (number - 1) * random.uniform(0.5, 1.5))  # noqa: S311
            try:
                with self._telling():
                    return request()
            except FileNotFoundError:
                raise
            except Exception as error:
                last = error
                on_failure(error)
                if isinstance(error, PermissionError) or getattr(error, "errno", None) in FINAL:
                    break
        remedy = "; free space there: `grpoflow gc --remote`" if getattr(last, "errno", None) in FULL else ""
        raise RemoteError(
            f"{self.url}: {_told(last)}{remedy}"
        ) from None  # what is behind it may hold secrets

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Until it has answered once, tell, once, that somebody waits for it."""
        if self._telling_over:
            yield
            return
        self._telling_over = True  # the first request tells for all that are under way
        timer = threading.Timer(TELL_S, self.tell, [f"{self.url} has not answered yet, it is waited for"])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _told(error: Exception | None) -> str:
    """An error in one line, without the values of secrets that a server may repeat."""
    text = getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__
    for name in SECRETS:
        if os.environ.get(name):
            text = text.replace(os.environ[name], "…")
    return re.sub(r"//[^/@\s]+@", "//…@", text)[:300]
