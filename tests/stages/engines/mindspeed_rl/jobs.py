"""Jobs as the pipeline creates them, and files of a run."""

import functools
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pipeline.config.load import load
from stages.engines.mindspeed_rl.job import Job, Paths, paths_of

DATA = Path(__file__).parents[3] / "data"
HOME = DATA / "mindspeed_rl_standin" / "checkout"
sys.path.append(str(HOME.parent))
import standin_data  # noqa: E402

write_index = standin_data.write_indexed
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
    with zipfile.ZipFile(path, "w") as archive:  # np.savez: Python 3.10 writes other bytes than later ones
        archive.writestr(zipfile.ZipInfo("weights"), np.full(64, value).tobytes())
