"""`make bench [BENCH=NAME]`: run tests/benchmarks/NAME.py, or all, and store the results.

Further arguments go to the benchmark: `python -m tests.benchmarks noop --dvc PATH/dvc`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"__init__", "__main__", "figures"}


def main(arguments: list[str]) -> int:
    """Run the named benchmark with its arguments, or all; return 1 if a target is not met."""
    names = sorted(file.stem for file in HERE.glob("*.py") if file.stem not in NOT_BENCHMARKS)
    if arguments and arguments[0] not in names:
        print(f"error: {arguments[0]}: no such benchmark; known: {', '.join(names)}", file=sys.stderr)
        return 2
    met = True
    for name in arguments[:1] or names:
        module = importlib.import_module(f"tests.benchmarks.{name}")
        met &= module.main(arguments[1:])
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
