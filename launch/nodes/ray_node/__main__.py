"""Entry point; imports the package from the directory that contains it, a copy or not."""

import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)
from ray_node.node import main  # noqa: E402

del sys.path[0]  # the directory contains no modules of the program

if __name__ == "__main__":
    try:
        CODE = main(sys.argv[1:])
    except SystemExit as stopped:
        CODE = int(stopped.code or 0)
    sys.stdout.flush()
    os._exit(CODE)  # ray's exit handler waits a minute for a cluster that has ended
