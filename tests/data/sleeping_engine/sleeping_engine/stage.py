"""Stage of engine=sleeping: sleep, and write a line into the journal at the beginning and at the end."""

import fcntl
import os
import socket
import time
from pathlib import Path


def run(context):
    """Sleep as long as the engine's settings say.

    A lock, which has nothing to do with those of the store, shows whether another process does the same now.
    """
    journal = Path(os.environ["SLEEPING_JOURNAL"])
    artifact = f"{context.stage}/{context.output.name.removeprefix('.building-').partition('+')[0]}"
    where = os.environ.get("SLURM_JOB_ID") or socket.gethostname()

    def write(event):
        with journal.open("a") as lines:
            lines.write(f"{event} {artifact} {where} {os.getpid()} {time.time():.3f}\n")

    with journal.with_name(artifact.replace("/", "-")).open("w") as mine:
        try:
            fcntl.flock(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            write("twice")
            raise
        write("begin")
        time.sleep(context.config["engine"][f"{context.stage}_s"])
        context.write_result({"slept_s": context.config["engine"][f"{context.stage}_s"]})
        write("end")
