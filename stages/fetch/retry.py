"""Try again what may pass by itself: time-outs, broken connections, busy or failing servers."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from stages.base.errors import InputError
from stages.base.redact import redact
from stages.fetch.sources import FetchConfig

T = TypeVar("T")
LONGEST_S = 60.0


class Passing(Exception):
    """A failure that may pass by itself."""

    def __init__(self, why: str, retry_after_s: float | None = None) -> None:
        self.why = redact(why)
        self.retry_after_s = retry_after_s
        super().__init__(self.why)


def retrying(
    action: Callable[[], T],
    config: FetchConfig,
    origin: str,
    bytes_here: Callable[[], int] = lambda: 0,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Return the result of `action`, repeated while it raises Passing; every other error is raised at once.

    A try that brought new bytes starts the count afresh: a long transfer over a bad line ends some
    day. What lies on disk counts, so a server that always starts over does not keep us for ever.

    Args:
        action: must go on where it stopped.
        config: attempts and wait_s.
        origin: what is fetched and from where, for the error.
        bytes_here: how much has arrived so far.
        sleep: for tests.

    Raises:
        InputError: `action` failed config.attempts times in a row.
    """
    tried, most = 0, bytes_here()
    while True:
        try:
            return action()
        except Passing as error:
            here = bytes_here()
            tried = 1 if here > most else tried + 1
            most = max(most, here)
            if tried >= config.attempts:
                remedy = "the network or the server is at fault: run again later, what has arrived is kept"
                raise InputError(origin, None, f"{error.why} ({tried} tries)", remedy) from error
            # Half of the wait by chance, so that the nodes of a cluster do not come back all at once.
            wait = min(LONGEST_S, config.wait_s * 2 ** (tried - 1)) * random.uniform(0.5, 1.5)  # noqa: S311
            wait = max(wait, min(LONGEST_S, error.retry_after_s or 0.0))
            print(f"retry {tried} of {config.attempts - 1} in {wait:.1f} s: {error.why}", flush=True)
            sleep(wait)
