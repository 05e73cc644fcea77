"""engine=mindrlhf_one_stage: mindrlhf's grpo_one_stage.py of March 2025, under msrun."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stages.base.graph import Program, Stage
from stages.engines.declaration import Declaration, Declared
from stages.engines.engine import Checkout
from stages.engines.mindformers.checkout import checkout
from stages.engines.mindrlhf import engine as mindrlhf
from stages.engines.mindrlhf import vocabulary
from stages.engines.mindrlhf_one_stage import variant
from stages.engines.mindrlhf_one_stage.config import CONTRACT
from stages.engines.mindrlhf_one_stage.variant import Job
from stages.engines.programs import known
from stages.engines.sizes import growth, rank_bytes
from stages.models.memory import warnings

if TYPE_CHECKING:
    from stages.sections import Sections

GRPO = Program("mindrlhf_one_stage", "stages.engines.mindrlhf_one_stage.stage", version=1)


def stages(run: Sections) -> tuple[Stage, ...]:
    """Return mindrlhf's graph for rank checkpoints, with those of training and generation only."""
    ranks = rank_bytes(run)
    changes: dict[str, dict[str, Any]] = {
        "strategy": {"sections": ("model", "layout", "split")},
        "split": {"bytes_written": ranks["train"] + ranks["generate"]},
        "grpo": {"program": GRPO, "bytes_written": ranks["train"] * growth(run)},
    }
    graph = mindrlhf.graph(run, "ckpt", converted=False)
    return tuple(replace(stage, **changes.get(stage.name, {})) for stage in graph)


def derive(values: dict[str, Any]) -> None:
    """Fill in the contract of the user's checkout and the files that the script reads."""
    engine = values["engine"]
    if engine["contract"] == "auto":
        engine["contract"] = variant.recognise(engine["mindrlhf_home"])
    values["convert"] |= {"materialize": True, "format": "ckpt"}
    values["split"] |= {"format": "ckpt", "roles": ["train", "generate"]}


ENGINE = Declared(
    Declaration(
        name="mindrlhf_one_stage",
        trains=lambda family: family.name == "qwen2",
        stages=stages,
        rules=variant.RULES,
        subject=lambda run, cards_per_node: Job.from_run(run),
        programs=(GRPO,),
        checkouts=(
            Checkout("one_stage", "engine.mindrlhf_home", variant.recognise, variant.DESCRIPTION),
            checkout(
                "engine.mindformers_home",
                "a checkout of mindformers' dev branch of March 2025, which mindrlhf's README names",
                window=">=1.4.0b1",  # what that branch called itself
            ),
        ),
        known={CONTRACT: known("one_stage", "machine_one_stage")},
        imports=("mindspore",),
        unrehearsed="grpo_one_stage.py needs mindformers' dev branch of March 2025, for which no replacement"
        " of Ascend operators is known",
        derive=derive,
        notes=lambda run: variant.notes(Job.from_run(run)),
        memory=lambda run: variant.estimate(Job.from_run(run)),
        shortage=lambda run, roles, have: warnings(roles, Job.from_run(run).engine.device_memory_gib),
        load=lambda run, have: mindrlhf.step_load(Job.from_run(run)),
        leftover=lambda settings, model: vocabulary.leftover(model, "qwen"),
    )
)
