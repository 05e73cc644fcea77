"""The places of upstream that on_path/sitecustomize.py stands on; checkouts are asked before they are used.

Whoever edits a checkout, or takes another commit, may move what a hidden package stands for. A rehearsal that
missed its place would prove something else than it says: so it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stages.base.errors import Problem
from stages.engines.mindspeed_rl.config import Version

_TRAIN = "cli/train_grpo.py"
_ROLLOUT = "mindspeed_rl/models/rollout/vllm_engine.py"
_LAUNCHER = "mindspeed_rl/workers/scheduler/launcher_ms.py"
_SCHEDULER = "mindspeed_rl/workers/scheduler/scheduler_ms.py"
_CHECKPOINTING = "megatron/training/checkpointing.py"


@dataclass(frozen=True)
class Place:
    """A line of upstream, and what stands on it."""

    file: str
    words: str
    """Must be a line of the file, without what stands around it."""
    why: str
    lines: Mapping[Version, int] = field(default_factory=dict)
    """Where it was read, 667a547 in c21465a; a version that is not named has no such place."""


def _both(newer: int, older: int) -> dict[Version, int]:
    return {"05a90d7": newer, "667a547": older}


PLACES = (
    Place(_TRAIN, "if not torch.cuda.is_available():", "cuda_means_this_device", _both(528, 419)),
    Place(_CHECKPOINTING, "'cuda_rng_state': torch.cuda.get_rng_state(),", "the same", _both(275, 261)),
    Place(_ROLLOUT, "from torch_npu.contrib import transfer_to_npu", "the same", _both(14, 13)),
    Place(_ROLLOUT, "from vllm import LLM, SamplingParams", "vllm is hidden", _both(18, 30)),
    Place(_LAUNCHER, "import acl", "acl is hidden", _both(25, 25)),
    Place(_SCHEDULER, "mint.distributed.init_process_group(", "mindspore is hidden", _both(151, 151)),
    Place("mindspeed/op_builder/gmm_builder.py", "import torchair", "torchair is hidden", {"05a90d7": 4}),
)


def moved(home: Path, version: Version, places: Sequence[Place] = PLACES) -> Iterator[Problem]:
    """Places that are not where a rehearsal needs them.

    Args:
        home: the checkout of MindSpeed-RL, with megatron and mindspeed copied in as its guide says.
        version: its contract.
        places: what to look for.
    """
    for place in (place for place in places if version in place.lines):
        try:
            lines = (home / place.file).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            rule = f"a rehearsal reads it ({getattr(error, 'strerror', None) or error})"
            yield Problem("engine.mindspeed_rl_home", str(home / place.file), rule, _REMEDY)
            continue
        if place.words not in map(str.strip, lines):
            rule = f"must hold `{place.words}` (line {place.lines[version]}; {place.why})"
            yield Problem("engine.mindspeed_rl_home", str(home / place.file), rule, _REMEDY)


_REMEDY = (
    "rehearse with a checkout of 05a90d7, or of 667a547 to 749829d^, into which megatron and mindspeed were "
    "copied as its guide says"
)
