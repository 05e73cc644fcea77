"""MindSpeed-RL's checkpoints: Megatron's directories, and checks that they are complete.

Layout: latest_checkpointed_iteration.txt (the tracker), written last, and iter_0000010/mp_rank_TT[_PPP]/ with
model_optim_rng.pt and, with the distributed optimizer, distrib_optim.pt. A converter writes the weights
alone, as iteration 1.
Source: NVIDIA/Megatron-LM core_v0.12.1, megatron/training/checkpointing.py; Ascend/MindSpeed-LLM a2c0733b,
tasks/checkpoint/models.py:1030.
"""

import re
import shutil
import zipfile
from pathlib import Path

from stages.base.errors import InputError
from stages.base.layout import RoleLayout
from stages.engines.outside import link_or_copy

TRACKER = "latest_checkpointed_iteration.txt"
WEIGHTS = "model_optim_rng.pt"
OPTIMIZER = "distrib_optim.pt"
_NAME = re.compile(r"iter_(\d{7})")


def directory(root: Path, iteration: int) -> Path:
    """Return the directory of one iteration."""
    return root / f"iter_{iteration:07d}"


def ranks(layout: RoleLayout) -> list[str]:
    """Return the directories of one iteration: one per part of the model."""
    tensor, pipeline = range(layout.model_parallel), range(layout.pipeline_stage)
    if layout.pipeline_stage == 1:
        return [f"mp_rank_{t:02d}" for t in tensor]
    return [f"mp_rank_{t:02d}_{p:03d}" for t in tensor for p in pipeline]


def defect(directory: Path, layout: RoleLayout, optimizer: bool) -> str | None:
    """Return what is missing or truncated in one iteration's directory; None if it is complete."""
    for rank in ranks(layout):
        for name in (WEIGHTS, OPTIMIZER) if optimizer else (WEIGHTS,):
            file = directory / rank / name  # every rank directory has an optimizer, of data-parallel rank 0
            if not file.is_file() or file.stat().st_size == 0:
                return f"{rank}/{name} is missing"
            if _is_truncated(file):
                return f"{rank}/{name} is truncated"
    extra = {path.name for path in directory.glob("mp_rank_*")} - set(ranks(layout))
    return f"it was sharded for another layout: {min(extra)}" if extra else None


def _is_truncated(file: Path) -> bool:
    """Return True if a zip archive (torch.save's format) has no end; other formats cannot be checked."""
    with file.open("rb") as stream:
        return stream.read(2) == b"PK" and not zipfile.is_zipfile(file)


def tracked(root: Path) -> int | None:
    """Return the iteration that the tracker names; None without a readable tracker."""
    try:
        text = (root / TRACKER).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return int(text) if text.isdecimal() else None


def prepare_resume(root: Path, layout: RoleLayout, optimizer: bool, last: int) -> int | None:
    """Return the iteration to resume from, at most `last`; remove later ones and correct the tracker.

    It is the tracker's iteration, which is written after all ranks, unless a kill left the tracker or that
    iteration incomplete; then the newest complete one. None if the run must start from the beginning.
    """
    saved = _iterations(root)
    complete = [
        number
        for number in saved
        if number <= last and defect(directory(root, number), layout, optimizer) is None
    ]
    if not complete:
        shutil.rmtree(root, ignore_errors=True)
        return None
    tracker = tracked(root)
    newest = tracker if tracker is not None and tracker in complete else complete[-1]
    for number in saved:
        if number > newest:
            shutil.rmtree(directory(root, number))
    if tracker != newest:
        temporary = root / f"{TRACKER}.new"
        temporary.write_text(str(newest), encoding="utf-8")
        temporary.replace(root / TRACKER)
    return newest


def prune(root: Path, keep: int) -> None:
    """Remove the oldest iterations beyond `keep`; MindSpeed-RL itself keeps all.

    Iterations after the tracker's, which may be incomplete, are left alone.
    """
    last = tracked(root)
    finished = [number for number in _iterations(root) if last is not None and number <= last]
    for number in finished[:-keep]:
        shutil.rmtree(directory(root, number))


def _iterations(root: Path) -> list[int]:
    return sorted(int(match[1]) for path in root.glob("iter_*") if (match := _NAME.fullmatch(path.name)))


def converted(root: Path, layout: RoleLayout) -> Path:
    """Return the directory that the tracker of a converter's result names.

    Raises:
        InputError: there is none, or it is not complete for the layout.
    """
    tracker, remedy = tracked(root), "read the converter's log"
    if tracker is None:
        raise InputError(root / TRACKER, None, "must name what the converter wrote", remedy)
    weights = directory(root, tracker)
    if fault := defect(weights, layout, optimizer=False):
        raise InputError(weights, None, f"is no complete checkpoint of {layout.name}: {fault}", remedy)
    return weights


def import_weights(directory: Path, target: Path, layout: RoleLayout) -> None:
    """Link or copy the weights of one iteration into an artifact, and write its tracker."""
    for rank in ranks(layout):
        file = target / directory.name / rank / WEIGHTS
        file.parent.mkdir(parents=True)
        link_or_copy(directory / rank / WEIGHTS, file)
    number = int(directory.name.removeprefix("iter_"))
    (target / TRACKER).write_text(str(number), encoding="utf-8")
