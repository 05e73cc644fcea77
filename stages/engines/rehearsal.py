"""Parts that the rehearsals of all engines share: proofs, and the configuration for a CPU."""

import copy
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from launch.nodes.start import script_words
from stages.base.layout import ROLES
from stages.models.families import FAMILIES

State = Literal["proven", "failed", "unproven"]
VARIABLE = "GRPOFLOW_REHEARSAL"
"""Variable without which a rehearsal's directories on PYTHONPATH have no effect."""
STEPS = 2
"""Steps of a rehearsal; the run is killed after the first checkpoint, and resumed."""
HELD_OUT = 4
"""Held-out rows, all of which evaluate answers."""
HIDDEN, LAYERS, HEADS, INTERMEDIATE = 16, 2, 2, 32


@dataclass(frozen=True)
class Proof:
    """One claim that a run relies on."""

    what: str
    """Claim in a few words."""
    state: State
    """proven: it was observed; failed: the opposite was observed; unproven: this machine cannot show it."""
    told: str
    """Observation with figures; the likely cause of a failure; the reason why something is unproven."""


def proof(what: str, holds: bool, told: str) -> Proof:
    """Return a claim that is proven or has failed."""
    return Proof(what, "proven" if holds else "failed", told)


def resumed(artifact: Path, killed: int | list[int] | None, what: str = "resumed") -> Proof:
    """Return the proof that a stage resumed from the checkpoint after which it was killed, or a later one.

    Checkpoints are steps or [epoch, step]; None: it was not killed.
    """
    result = json.loads((artifact / "result.json").read_text(encoding="utf-8"))
    start = result["resumed_from"]
    holds = killed is not None and start is not None and start >= killed
    seen = f"killed (SIGKILL) after checkpoint {killed}; resumed from {start}, {result['steps']} steps in all"
    return proof(what, holds, seen)


def positive(what: str, rows: Sequence[Mapping[str, Any]], key: str) -> Proof:
    """Return the proof that a logged number is finite and positive in every step."""
    values = [row.get(key, math.nan) for row in rows]
    holds = bool(values) and all(math.isfinite(value) and value > 0 for value in values)
    return proof(what, holds, ", ".join(f"{value:.4g}" for value in values))


def environment(on_path: Path, variables: Mapping[str, str], **more: str) -> dict[str, str]:
    """Return engine.env of a rehearsal: the run's variables, `more`, and `on_path` first on PYTHONPATH."""
    path = [str(on_path), *filter(None, [variables.get("PYTHONPATH")])]
    return {**variables, "PYTHONPATH": os.pathsep.join(path), **more}


def shrink(config: Mapping[str, Any], model: Path, workers: int) -> dict[str, Any]:
    """Return a copy of a plain configuration with a small model in `model`, complete on each worker.

    Grouped heads stay grouped. The engines' rehearsals shrink batches, lengths and numbers of steps.
    """
    small = copy.deepcopy(dict(config))
    grouped = config["model"]["num_key_value_heads"] < config["model"]["num_attention_heads"]
    small["model"] |= {
        "source": "local",
        "path": str(model),
        "tokenizer_path": None,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS // 2 if grouped else HEADS,
        "intermediate_size": INTERMEDIATE,
    }
    family = FAMILIES[config["model"]["family"]]
    if family.small:
        small["model"][family.name] |= family.small
    small["layout"] = complete_layout(config["layout"], workers)
    small["cards"] = workers
    small["dataset"]["test_rows"] = HELD_OUT
    # the vLLM of an engine's environment needs cards
    local: dict[str, Any] = {
        "program": "local",
        "python": None,
        "env": {},
        "dtype": None,
        "max_model_len": None,
    }
    local |= {"gpu_memory_utilization": None, "upstream": {}}
    small["evaluate"] |= {"num_prompts": HELD_OUT, "sample_prompts": 0, **local}
    for settings in (small["engine"], small["mindformers"]):
        if "env_scripts" in settings:  # some exist on machines with NPUs only
            settings["env_scripts"] = tuple(
                script for script in settings["env_scripts"] if Path(script_words(script)[0]).exists()
            )
    return small


def complete_layout(layout: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Return a layout in which every role holds complete weights: a CPU cannot shard tensors."""
    degrees = dict.fromkeys(
        ("model_parallel", "pipeline_stage", "context_parallel", "expert_parallel", "micro_batch_num"), 1
    )
    whole = ("recompute", "select_recompute")  # numbers of layers are those of the stages that there were
    roles: dict[str, Any] = {
        role: {
            **layout[role],
            **degrees,
            **{key: bool(layout[role][key]) for key in whole},
            "data_parallel": workers,
            "offset": (),
        }
        for role in ROLES
    }
    return {**layout, **roles, "name": f"dp{workers}_mp1_pp1"}
