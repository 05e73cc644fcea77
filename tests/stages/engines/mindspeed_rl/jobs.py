"""Jobs as the pipeline creates them, and files of a run."""

import functools
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.config.load import load
from stages.engines.mindspeed_rl.job import Job, Paths, paths_of

DATA = Path(__file__).parents[3] / "data"
HOME = DATA / "mindspeed_rl_standin"
WINDOWS = {"05a90d7": HOME / "head", "667a547": HOME / "window"}
SEVEN = ("model=qwen2_5_7b", "layout=dp4_mp2_pp2", "layout.generate.model_parallel=1")


@functools.lru_cache(64)  # composing takes a second
def job_of(*overrides: str) -> Job:
    return Job.from_run(load(["engine=mindspeed_rl", "model.path=/models/qwen", *overrides]))


def paths() -> Paths:
    return paths_of(Path("/run"))


def save_checkpoint(
    root: Path, iteration: int, ranks: Sequence[str], optimizer: bool = True, tracker: bool = True
) -> Path:
    """Save an iteration as Megatron does, the tracker last."""
    directory = root / f"iter_{iteration:07d}"
    for rank in ranks:
        for name in ("model_optim_rng.pt", "distrib_optim.pt") if optimizer else ("model_optim_rng.pt",):
            write_archive(directory / rank / name, iteration)
    if tracker:
        (root / "latest_checkpointed_iteration.txt").write_text(str(iteration))
    return directory


def write_archive(path: Path, value: int) -> None:
    """Write a zip archive, as torch.save does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez(file, weights=np.full(64, value))


def write_index(stem: Path, rows: Sequence[Sequence[int]]) -> None:
    """Write Megatron's indexed data set: int32 tokens, and an index of their lengths."""
    lengths = [len(row) for row in rows]
    starts = [4 * sum(lengths[:i]) for i in range(len(rows))]
    stem.with_name(f"{stem.name}.bin").write_bytes(
        b"".join(struct.pack(f"<{len(row)}i", *row) for row in rows)
    )
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 4, len(rows), len(rows) + 1)
    body = struct.pack(f"<{len(rows)}i{len(rows)}q", *lengths, *starts)
    tail = struct.pack(f"<{len(rows) + 1}q", *range(len(rows) + 1))
    stem.with_name(f"{stem.name}.idx").write_bytes(head + body + tail)
