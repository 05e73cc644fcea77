"""Retries of downloads after time-outs, broken connections and answers of busy servers."""

import time
from collections.abc import Callable
from typing import TypeVar

from urllib3.util import Retry

from stages.base.errors import InputError
from stages.base.redact import redact
from stages.fetch.sources import FetchConfig

T = TypeVar("T")
LONGEST_S = 60.0


class TemporaryError(Exception):
    """A failure that may pass by itself."""

    def __init__(self, reason: str, retry_after_s: float | None = None) -> None:
        super().__init__(redact(reason))
        self.retry_after_s = min(LONGEST_S, retry_after_s or 0.0)


def retrying(
    action: Callable[[], T], config: FetchConfig, origin: str, received: Callable[[], int] = lambda: 0
) -> T:
    """Return the result of `action`, repeated while it raises TemporaryError.

    An attempt that received new bytes restarts the count, so that a long transfer over a bad line ends.

    Args:
        action: continues where its last attempt stopped.
        config: attempts and wait_s.
        origin: name and source of the download, for the error.
        received: returns the bytes on disk.

    Raises:
        InputError: `action` failed config.attempts times in a row.
    """
    policy = Retry(
        config.attempts - 1,
        backoff_factor=config.wait_s,
        backoff_max=LONGEST_S,
        backoff_jitter=config.wait_s,  # the nodes of a cluster must not all retry at once
    )
    retry, most = policy, received()
    while True:
        try:
            return action()
        except TemporaryError as error:
            if received() > most:
                retry, most = policy, received()
            if not retry.total:
                remedy = "run again later; what has arrived is kept"
                raise InputError(origin, None, f"{error} ({config.attempts} tries)", remedy) from error
            retry = retry.increment("GET", error=error)
            wait_s = max(retry.get_backoff_time(), error.retry_after_s)
            left = f"{len(retry.history)} of {config.attempts - 1}"
            print(f"retry {left} in {wait_s:.1f} s: {error}", flush=True)
            time.sleep(wait_s)
