"""MindSpeed-RL's checkpoints: Megatron's directories, and which of them are whole.

Layout: latest_checkpointed_iteration.txt, written last, and iter_0000010/mp_rank_TT[_PPP]/ with
model_optim_rng.pt and, under the distributed optimizer, distrib_optim.pt. A converter's directory is the
same with the weights alone, and may be called release.
Source: NVIDIA/Megatron-LM core_v0.12.1, megatron/training/checkpointing.py.
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
RELEASE = "release"
_NAME = re.compile(r"iter_(\d{7})")


def directory(root: Path, iteration: int) -> Path:
    """Return the directory of one iteration."""
    return root / f"iter_{iteration:07d}"


def ranks(layout: RoleLayout) -> list[str]:
    """Directories of one iteration: one per part of the model."""
    tensor, pipeline = range(layout.model_parallel), range(layout.pipeline_stage)
    if layout.pipeline_stage == 1:
        return [f"mp_rank_{t:02d}" for t in tensor]
    return [f"mp_rank_{t:02d}_{p:03d}" for t in tensor for p in pipeline]


def flaw(directory: Path, layout: RoleLayout, optimizer: bool) -> str | None:
    """Return what is missing or truncated in one iteration's directory; None if it is complete."""
    files = [WEIGHTS, *([OPTIMIZER] if optimizer else [])]
    for rank in ranks(layout):
        for name in files:
            file = directory / rank / name
            # rank 0 of data parallelism alone writes the optimizer; it lies in the same directory
            if not file.is_file() or file.stat().st_size == 0:
                return f"{rank}/{name} is missing"
            if _cut_off(file):
                return f"{rank}/{name} is cut off"
    names = {path.name for path in directory.glob("mp_rank_*")}
    extra = sorted(names - set(ranks(layout)))
    return f"it was cut for another layout: {extra[0]}" if extra else None


def iterations(root: Path, layout: RoleLayout, optimizer: bool) -> list[int]:
    """Return the complete iterations, oldest first."""
    numbers = [int(match[1]) for path in root.glob("iter_*") if (match := _NAME.fullmatch(path.name))]
    return sorted(number for number in numbers if flaw(directory(root, number), layout, optimizer) is None)


def tracked(root: Path) -> str | None:
    """Return the tracker's content: an iteration number or `release`; None if there is no tracker."""
    try:
        return (root / TRACKER).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def prepare_resume(root: Path, layout: RoleLayout, optimizer: bool) -> int | None:
    """Find the newest iteration that a run can go on from, and make the tracker say so.

    The tracker names it as a rule: it is written after all ranks. One that names an iteration which is
    not whole, or that a kill cut off, is set back; later directories go, for they are incomplete.

    Returns:
        The iteration, or None when the run must begin anew.
    """
    complete = iterations(root, layout, optimizer)
    if not complete:
        shutil.rmtree(root, ignore_errors=True)
        return None
    newest, tracker = complete[-1], tracked(root)
    if tracker is not None and tracker.isdecimal() and int(tracker) in complete:
        newest = int(tracker)  # a later one is whole, but was not yet declared so
    for path in root.glob("iter_*"):
        match = _NAME.fullmatch(path.name)
        if match is None or int(match[1]) > newest:
            shutil.rmtree(path)
    if tracker != str(newest):
        temporary = root / f"{TRACKER}.new"
        temporary.write_text(str(newest), encoding="utf-8")
        temporary.replace(root / TRACKER)
    return newest


def converted(root: Path, layout: RoleLayout) -> Path:
    """Return the directory that the tracker of a converter's result names.

    Raises:
        InputError: there is none, or it is not whole for the layout.
    """
    tracker = tracked(root)
    remedy = "read the converter's log"
    if tracker is None or not (tracker == RELEASE or tracker.isdecimal()):
        raise InputError(root / TRACKER, tracker, "must name what the converter wrote", remedy)
    directory_of_weights = root / RELEASE if tracker == RELEASE else directory(root, int(tracker))
    fault = flaw(directory_of_weights, layout, optimizer=False)
    if fault is not None:
        raise InputError(
            directory_of_weights, None, f"is no whole mcore checkpoint of {layout.name}: {fault}", remedy
        )
    return directory_of_weights


def bring_home(directory: Path, target: Path, layout: RoleLayout) -> None:
    """Weights of one iteration under second names, or copied from another disk, with their own tracker."""
    for rank in ranks(layout):
        source, file = directory / rank / WEIGHTS, target / directory.name / rank / WEIGHTS
        file.parent.mkdir(parents=True)
        link_or_copy(source, file)
    number = directory.name if directory.name == RELEASE else str(int(directory.name.removeprefix("iter_")))
    (target / TRACKER).write_text(number, encoding="utf-8")


def prune(root: Path, keep: int) -> None:
    """Remove the oldest iterations beyond `keep`; MindSpeed-RL itself keeps all.

    The tracker's own and later ones, which may be under way, stay.
    """
    tracker = tracked(root)
    if tracker is None or not tracker.isdecimal():
        return
    numbers = [int(match[1]) for path in root.glob("iter_*") if (match := _NAME.fullmatch(path.name))]
    declared = sorted(number for number in numbers if number <= int(tracker))
    for number in declared[:-keep]:
        shutil.rmtree(directory(root, number))


def _cut_off(file: Path) -> bool:
    """Return True if a zip archive (torch.save's format) lacks its end; other formats cannot be checked."""
    with file.open("rb") as stream:
        return stream.read(2) == b"PK" and not zipfile.is_zipfile(file)
