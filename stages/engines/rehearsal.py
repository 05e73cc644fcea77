"""Parts that the rehearsals of all engines share: proofs, checks of checkouts, configuration of a CPU."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stages.base.errors import Problem
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


@dataclass(frozen=True)
class SourceLocation:
    """Code of a checkout that a rehearsal replaces; in an edited checkout the replacement may miss it."""

    file: str
    code: str
    replacement: str
    versions: tuple[str, ...]
    """Versions of the checkout that contain the code."""


def moved(home: Path, setting: str, locations: Sequence[SourceLocation], version: str) -> Iterator[Problem]:
    """Yield a problem for each location of `version` that the checkout `home` does not contain."""
    for location in locations:
        file = home / location.file
        text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
        if version in location.versions and location.code not in text:
            code = location.code.strip()
            rule = f"{file} must contain `{code}`, which a rehearsal replaces ({location.replacement})"
            yield Problem(setting, str(home), rule, "rehearse with an unedited checkout")


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
