"""Run this node's part; the room is found where it lies, a copy or not."""

import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)
from ray_node.node import main  # noqa: E402

del sys.path[0]  # what else lies there is no module of a program's

if __name__ == "__main__":
    try:
        CODE = main(sys.argv[1:])
    except SystemExit as stopped:
        CODE = int(stopped.code or 0)
    sys.stdout.flush()
    os._exit(CODE)  # ray's own end at exit waits a minute for a cluster that is gone
