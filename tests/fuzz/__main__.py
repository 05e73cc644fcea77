"""`make fuzz`, or `python -m tests.fuzz [--minutes N] [--first NUMBER] [NAME …]`: finds, and counts of cases.

Every name has a process of its own, so that a crash is a find and ends no other.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import tempfile
import time
from pathlib import Path

from tests.fuzz.files import LONGEST_S
from tests.fuzz.formats import FORMATS
from tests.fuzz.slices import MACHINE, attempt

SLICE_S = 60.0
ALL = (*FORMATS, MACHINE)


def main() -> int:
    """Exit code 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("names", nargs="*", default=[], metavar="NAME", help=", ".join(ALL))
    parser.add_argument("--minutes", type=float, default=60, help="in all (default 60)")
    parser.add_argument("--first", type=int, default=int(time.time()), help="number of the first case")
    options = parser.parse_args()
    names = options.names or list(ALL)
    counts, known = dict.fromkeys(names, 0), set()
    end = time.monotonic() + 60 * options.minutes
    while time.monotonic() < end:
        for name in names:
            seconds = min(SLICE_S, max(1.0, end - time.monotonic()), 60 * options.minutes / len(names))
            with tempfile.NamedTemporaryFile(suffix=".json") as result:
                first = options.first + counts[name]
                process = multiprocessing.get_context("spawn").Process(
                    target=attempt, args=(name, first, seconds, result.name)
                )
                process.start()
                process.join(seconds + 10 * LONGEST_S)
                if process.exitcode is None:  # in a library's code, which no alarm of ours ends
                    process.kill()
                    process.join()
                text = Path(result.name).read_text()
            count, finds = (
                json.loads(text) if text else (1, [f"{name} from {first}: exit {process.exitcode}"])
            )
            counts[name] += count
            for find in finds:
                lines = find.splitlines()
                if (place := " ".join(lines[-2:])) not in known:
                    known.add(place)
                    print(f"FIND {find}\n", flush=True)
        print(json.dumps({"cases": counts, "finds": len(known)}), flush=True)
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(main())
