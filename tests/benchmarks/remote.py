"""Push and pull beside rclone, with the same S3 server on loopback: large files, and many small ones.

The server is rclone's own (`rclone serve s3`), on a directory; moto's holds all in memory and is slow.
It runs with --no-checksum: else it hashes again what is read from beginning to end (our parts, their small
files) and not what is read in ranges (their large files): 1.1 s of its processor time per 600 MB, ours alone.
Both sides move the same artifact, in turn, as whole processes. Ours compares every digest on both ways, and a
pull ends with every file on the disk (fsync), as an artifact is committed; theirs ends with files in memory
and is the faster of `rclone copy` as it is by default and with 16 transfers. What one side has left in memory
is brought to the disk before the other begins, whose own writing would have to wait for it.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import astuple
from pathlib import Path

from pipeline.store.attempt import attempt
from pipeline.store.store import Key, Store
from tests.benchmarks.figures import Figure, at_least, at_most, wall_s, write
from tests.pipeline.artifacts import manifest_of, required
from tests.pipeline.remote import servers

BAR, PEAK_BAR_GIB = 0.8, 0.3
CHUNK = 8 << 20
COUNT = itertools.count()
KEY = Key("sft", "ab" * 32)
PROGRAM = """
import resource, sys
from pathlib import Path
from pipeline.store.remote.place import Place
from pipeline.store.remote.pull import pull
from pipeline.store.remote.push import push
from pipeline.store.store import Key, Store
what, url, endpoint, store, *key = sys.argv[1:]
assert {"push": push, "pull": pull}[what](Place(url, endpoint), Store(Path(store)), Key(*key))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def main(arguments: list[str]) -> bool:
    """Measure, write results/remote.json; True when every bar is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks remote", description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="of 3 GB and 10,000 files")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--scratch", type=Path, help="a directory with room for five times the content")
    options = parser.parse_args(arguments)
    program = shutil.which("rclone", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if program is None:
        names = ("push_ratio", "pull_ratio")
        return write("remote", [at_least(name, None, BAR) for name in names])
    os.environ.update(servers.CREDENTIALS)
    with tempfile.TemporaryDirectory(dir=options.scratch) as directory:
        root = Path(directory)
        (root / "served").mkdir()
        with servers.rclone(root / "served", "--no-checksum") as endpoint:
            return write("remote", list(_measure(root, endpoint, program, options)))


def _measure(root: Path, endpoint: str, program: str, options: argparse.Namespace) -> list[Figure]:
    figures: list[Figure] = []
    ratios: dict[str, list[float]] = {"push": [], "pull": []}
    peaks: list[float] = []
    many = max(1, int(options.scale * 10_000))
    for name, size, count in (("large", int(options.scale * 3e9), 6), ("small", many * 5000, many)):
        artifact = _artifact(Store(root / "mine"), size, count)
        for what, found in ratios.items():
            times: dict[str, list[float]] = {"ours": [], "theirs": [], "theirs, 16 transfers": []}
            for _ in range(options.runs):
                took, peak = _ours(what, root, endpoint)
                times["ours"].append(took)
                peaks.append(peak)
                times["theirs"].append(_theirs(what, root, artifact, endpoint, [program]))
                more = [program, "--transfers", "16"]
                times["theirs, 16 transfers"].append(_theirs(what, root, artifact, endpoint, more))
            ours, *others = (statistics.median(side) for side in times.values())
            found.append(min(others) / ours)
            figures += [
                Figure(f"{what}_{name}_s, {side}", statistics.median(t), "s") for side, t in times.items()
            ]
            figures.append(at_least(f"{what}_{name}_ratio", found[-1], BAR))
        for place in ("mine", "theirs", "copied"):
            shutil.rmtree(root / place)
    figures += [at_least(f"{what}_ratio", min(found), BAR) for what, found in ratios.items()]
    return [*figures, at_most("peak_gib", max(peaks), PEAK_BAR_GIB, "GiB")]


def _artifact(store: Store, size: int, count: int) -> Path:
    """An artifact of `count` files of together `size` bytes that nothing can compress."""
    store.open()
    block = os.urandom(CHUNK)
    with attempt(store, KEY) as seat:
        for number in range(count):
            file, left = seat.staging / f"{number % 100:02}" / f"{number:05}.bin", size // count
            file.parent.mkdir(exist_ok=True)
            with file.open("wb") as stream:
                while left:
                    begin = random.randrange(1 + max(0, CHUNK - left))
                    left -= stream.write(block[begin : begin + left])
        for name, content in required(KEY.stage, {}, {}).items():
            (seat.staging / name).parent.mkdir(parents=True, exist_ok=True)
            (seat.staging / name).write_bytes(content)
        path = store.commit(seat.staging, manifest_of(KEY))
        seat.done()
    return path


def _fresh(root: Path, side: str, what: str) -> str:
    """Where a side pushes to, or has pushed to last; never the same twice, for the server remembers names."""
    served = root / "served" / servers.BUCKET
    numbers = [int(path.name.rpartition("-")[2]) for path in served.glob(f"{side}-*")]
    if what == "pull":
        return f"{side}-{max(numbers)}"
    for number in numbers:
        shutil.rmtree(served / f"{side}-{number}")
    return f"{side}-{next(COUNT)}"


def _ours(what: str, root: Path, endpoint: str) -> tuple[float, float]:
    """Seconds of a whole process, and its peak memory (GiB)."""
    store, where = root / ("mine" if what == "push" else "theirs"), _fresh(root, "ours", what)
    if what == "pull":
        shutil.rmtree(store, ignore_errors=True)
    os.sync()
    arguments = [what, f"s3://{servers.BUCKET}/{where}", endpoint, str(store), *astuple(KEY)]
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], check=True, capture_output=True, text=True
    )
    return time.perf_counter() - began, float(done.stdout)


def _theirs(what: str, root: Path, artifact: Path, endpoint: str, program: list[str]) -> float:
    there, back = f":s3:{servers.BUCKET}/{_fresh(root, 'theirs', what)}", root / "copied"
    shutil.rmtree(back, ignore_errors=True)
    ways = {"push": [str(artifact), there], "pull": [there, str(back)]}
    os.sync()
    remote = ["--s3-provider", "Other", "--s3-env-auth", "--s3-endpoint", endpoint]
    return wall_s([*program, "--config", str(root / "none"), "copy", *ways[what], *remote], cwd=root)
