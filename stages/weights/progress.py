"""Reports to the pipeline of how many bytes of a transfer are done."""

import time

from stages.base.context import Context
from stages.weights.transfer import Progress

_INTERVAL_S = 0.5


def to_context(context: Context, message: str) -> Progress:
    """Forward progress to `context.progress`, at most twice a second and at the end (total 0: unknown)."""
    reported_s = 0.0

    def progress(done: int, total: int) -> None:
        nonlocal reported_s
        now_s = time.monotonic()
        if 0 < total <= done or now_s - reported_s >= _INTERVAL_S:
            reported_s = now_s
            context.progress(done, total, message, "B")

    return progress
