"""Entry point of a stage process: `python -m stages NAME spec.json`."""

import errno
import importlib
import io
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from stages.base.context import Context
from stages.base.errors import StageError, Stopped
from stages.catalog import STAGES
from stages.rewards import planned_code

# `import mindspore` fails if another package (tensorboardX) has loaded protobuf's compiled implementation.
os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "python")

STORE_TROUBLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EACCES, errno.EROFS)


def entry(name: str) -> Callable[[Context], None]:
    """Import and return the function of a stage, or the function MODULE:FUNCTION."""
    module, _, function = (STAGES[name].entry if name in STAGES else name).partition(":")
    run: Callable[[Context], None] = getattr(importlib.import_module(module), function or "run")
    return run


def main(arguments: list[str]) -> int:
    """Run one stage.

    Return 0 on success, 1 if it failed with a known reason, 2 on wrong arguments, 143 or 138 if a signal
    stopped it.
    """
    for stream in filter(None, (sys.stdout, sys.stderr)):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a log in ASCII must not fail a stage
    if len(arguments) != 2 or not (arguments[0] in STAGES or ":" in arguments[0]):
        print(
            f"usage: python -m stages {{{','.join(STAGES)},MODULE:FUNCTION}} spec.json",
            file=sys.stderr,
        )
        return 2
    began = time.monotonic()
    try:
        context = Context.load(Path(arguments[1]))
        planned_code.require(Path(arguments[1]))
        entry(arguments[0])(context)
        function = "" if arguments[0] in STAGES else f"{arguments[0].partition(':')[2]} "  # prepare, collect
        context.log(f"{function}finished in {time.monotonic() - began:.1f} s")
    except SystemExit as exit:
        if os.environ.get("MS_ROLE") == "MS_SCHED":  # msrun's scheduler, which has served the workers
            raise
        frame = traceback.extract_tb(exit.__traceback__)[-1]
        message = f"sys.exit({exit.code!r}) ended the stage before its work was done"
        print(f"error: {frame.filename}:{frame.lineno}: {message}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print(stopped, file=sys.stderr)  # no error of the stage's: another attempt goes on
        return stopped.exit_code
    except StageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        if error.errno not in STORE_TROUBLE:
            raise
        location = error.filename or "the stage's directory"
        print(f"error: {location}: {error.strerror}; choose another store with store=DIR", file=sys.stderr)
        return 1
    return 0


def leave(code: int) -> NoReturn:
    """End this process; skip the clean-up of MindSpore on a CPU, which takes half a second."""
    mindspore = sys.modules.get("mindspore")
    if mindspore is not None and mindspore.get_context("device_target") == "CPU":
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
