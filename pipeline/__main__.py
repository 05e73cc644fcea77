"""`python -m pipeline -m KEY=A,B`: a sweep, as Hydra users type it; without -m the same as `grpoflow run`."""

from __future__ import annotations

import sys

from pipeline.cli import main

if __name__ == "__main__":
    arguments = sys.argv[1:]
    multirun = {"-m", "--multirun"} & set(arguments)
    sys.exit(main(["sweep" if multirun else "run", *(one for one in arguments if one not in multirun)]))
