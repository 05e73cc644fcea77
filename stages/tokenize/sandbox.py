"""Jinja environment for chat templates, without access to Python, and limits of time and memory.

A template comes with a model and may be broken: nested loops, recursive macros and repeated texts could take
any time and memory.
"""

import contextlib
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from jinja2 import TemplateRuntimeError
from jinja2.sandbox import ImmutableSandboxedEnvironment

SECONDS = 10.0
"""Time limit of one template."""
MEMORY = 1 << 28
"""Bytes that a template may allocate."""


def environment() -> ImmutableSandboxedEnvironment:
    """Return the environment of transformers' chat templates; nothing is escaped as in HTML."""
    return ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )


@contextlib.contextmanager
def limits() -> Iterator[None]:
    """Stop the code in this block after SECONDS, or when it allocates more than MEMORY.

    Works in a process's main thread, by a timer and a limit of the address space.

    Raises:
        TemplateRuntimeError: the time is over.
        MemoryError: the memory is used up.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise TemplateRuntimeError(f"it takes more than {SECONDS:g} s")

    used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    memory = resource.getrlimit(resource.RLIMIT_AS)
    limit = min([used + MEMORY, *(value for value in memory if value != resource.RLIM_INFINITY)])
    handler = signal.signal(signal.SIGALRM, stop)
    timer = signal.setitimer(signal.ITIMER_REAL, SECONDS, 1.0)  # again each second: Jinja catches the first
    resource.setrlimit(resource.RLIMIT_AS, (limit, memory[1]))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, *timer)
        resource.setrlimit(resource.RLIMIT_AS, memory)
        signal.signal(signal.SIGALRM, handler)
