"""Parts that the rehearsals of all engines share: proofs, and the configuration for a CPU."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stages.base.layout import ROLES

State = Literal["proven", "failed", "unproven"]
VARIABLE = "GRPOFLOW_REHEARSAL"
"""Variable without which a rehearsal's directories on PYTHONPATH have no effect."""


@dataclass(frozen=True)
class Proof:
    """One claim that a run relies on."""

    what: str
    """Claim in a few words."""
    state: State
    """proven: it was observed; failed: the opposite was observed; unproven: this machine cannot show it."""
    told: str
    """Observation with figures; the likely cause of a failure; the reason why something is unproven."""


def environment(on_path: Path, variables: Mapping[str, str], **more: str) -> dict[str, str]:
    """Return engine.env of a rehearsal: the run's variables, `more`, and `on_path` first on PYTHONPATH."""
    path = [str(on_path), *filter(None, [variables.get("PYTHONPATH")])]
    return {**variables, "PYTHONPATH": os.pathsep.join(path), **more}


def complete_layout(layout: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Return a layout in which every role holds complete weights: a CPU cannot shard tensors."""
    degrees = dict.fromkeys(
        ("model_parallel", "pipeline_stage", "context_parallel", "expert_parallel", "micro_batch_num"), 1
    )
    roles: dict[str, Any] = {
        role: {**layout[role], **degrees, "data_parallel": workers, "offset": ()} for role in ROLES
    }
    return {**layout, **roles, "name": f"dp{workers}_mp1_pp1"}


def keep_existing_scripts(settings: dict[str, Any]) -> None:
    """Remove env_scripts that only a machine with NPUs has."""
    settings["env_scripts"] = tuple(file for file in settings["env_scripts"] if Path(file).exists())
