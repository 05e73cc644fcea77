"""MindSpeed-RL's checkpoints: Megatron's directories, and checks that they are complete.

Layout: latest_checkpointed_iteration.txt (the tracker), written last, and iter_0000010/mp_rank_TT[_PPP]/ with
model_optim_rng.pt and, with the distributed optimizer, distrib_optim.pt. A converter writes the weights
alone, as iteration 1.
Source: NVIDIA/Megatron-LM core_v0.12.1, megatron/training/checkpointing.py; Ascend/MindSpeed-LLM a2c0733b,
tasks/checkpoint/models.py:1030.
"""

import zipfile
from functools import partial
from pathlib import Path

from stages.base.errors import InputError
from stages.base.layout import RoleLayout
from stages.engines.outside import link_or_copy
from stages.engines.tracked_checkpoints import TRACKER, TrackedCheckpoints

WEIGHTS = "model_optim_rng.pt"
OPTIMIZER = "distrib_optim.pt"


def of_run(root: Path, layout: RoleLayout) -> TrackedCheckpoints:
    """Return the checkpoints of a run."""
    return _tracked(root, layout, layout.enable_parallel_optimizer)


def _tracked(root: Path, layout: RoleLayout, optimizer: bool) -> TrackedCheckpoints:
    return TrackedCheckpoints(root, "iter_{:07d}", partial(defect, layout, optimizer))


def ranks(layout: RoleLayout) -> list[str]:
    """Return the directories of one iteration: one per part of the model."""
    tensor, pipeline = range(layout.model_parallel), range(layout.pipeline_stage)
    if layout.pipeline_stage == 1:
        return [f"mp_rank_{t:02d}" for t in tensor]
    return [f"mp_rank_{t:02d}_{p:03d}" for t in tensor for p in pipeline]


def defect(layout: RoleLayout, optimizer: bool, directory: Path) -> str | None:
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


def converted(root: Path, layout: RoleLayout) -> Path:
    """Return the directory of a converter's result; raises InputError if it is incomplete for the layout."""
    written, remedy = _tracked(root, layout, optimizer=False), "read the converter's log"
    iteration = written.tracked()
    if iteration is None:
        raise InputError(written.tracker, None, "must name what the converter wrote", remedy)
    weights = written.directory(iteration)
    if fault := written.defect(weights):
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
