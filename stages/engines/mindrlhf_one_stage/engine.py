"""engine=mindrlhf_one_stage: mindrlhf's grpo_one_stage.py, February and March 2025, under msrun."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.engine import Checkout, Engine, Known, Load
from stages.base.graph import Program, Stage, growth, rank_bytes
from stages.base.reader import part
from stages.engines.mindformers.checkout import NUMPY, SAFETENSORS, checkout
from stages.engines.mindrlhf import vocabulary
from stages.engines.mindrlhf_one_stage import contract, rules
from stages.engines.mindrlhf_one_stage import memory as cards
from stages.engines.mindrlhf_one_stage.job import ROLES, Job
from stages.fetch.config import licence_files
from stages.models.memory import GIB, warnings

if TYPE_CHECKING:
    from stages.sections import Sections

GRPO = Program("mindrlhf_one_stage", "stages.engines.mindrlhf_one_stage.stage", version=3)


def stages(run: Sections) -> tuple[Stage, ...]:
    """Return the graph after fetch, with rank checkpoints for training and generation."""
    size, ranks = run.model.weight_bytes, rank_bytes(run)
    return (
        replace(catalog.CONVERT, bytes_written=size),
        catalog.TOKENIZE,
        replace(catalog.STRATEGY, sections=("model", "layout", "split")),
        replace(catalog.SPLIT, bytes_written=sum(ranks[role] for role in ROLES)),
        replace(catalog.SFT, skipped="sft.enabled=false: the script starts from the fetched weights"),
        replace(
            catalog.GRPO,
            sections=("model", "layout", "tokenize", "rollout", "reward", "train", "engine", "seed"),
            inputs={"weights": "split", "tokenize": "tokenize", "fetch": "fetch"},
            workers=run.layout.train.cards,
            bytes_written=ranks["train"] * growth(run),
            computes=True,
            program=GRPO,
        ),
        replace(
            catalog.EVALUATE,
            inputs={**catalog.EVALUATE.inputs, "before": "fetch", "strategy": "grpo"},
            computes=True,
        ),
        replace(
            catalog.EXPORT,
            inputs={**catalog.EXPORT.inputs, "strategy": "grpo"},
            external=licence_files(run.model),
            bytes_written=size,
        ),
    )


def derive(values: dict[str, Any]) -> None:
    """Fill in the contract of the user's checkout and the files that the script reads."""
    engine = values["engine"]
    if engine["contract"] == "auto":
        engine["contract"] = contract.recognise(engine["mindrlhf_home"])
    values["convert"] |= {"materialize": True, "format": "ckpt"}
    values["split"] |= {"format": "ckpt", "roles": list(ROLES)}


def job(run: Sections) -> Job:
    """Return the sections that a run is rendered from."""
    return part(Job, run)


def load(run: Sections) -> Load:
    """Return the work of one step and the memory of a card."""
    this = job(run)
    updates = this.samples // this.rows_per_update
    return Load(this.samples * this.seq_length, updates, this.engine.device_memory_gib * GIB)


KNOWN = Known(
    (("mindspore", ">=2.5", "mindrlhf's README of March 2025 names r2.5"), NUMPY, SAFETENSORS),
    ("cann", ">=8.0,<8.3", "MindSpore 2.4.10 goes with 8.0.0, 2.7.0 with 8.2.RC1"),
    ("driver", ">=24.1", "CANN 8.0.0 goes with driver 24.1.0"),
)
ENGINE = Engine(
    name="mindrlhf_one_stage",
    trains=lambda family: family.name == "qwen2",
    stages=stages,
    rules=rules.RULES,
    subject=lambda run, cards_per_node: job(run),
    programs=(GRPO,),
    checkouts=(
        Checkout(
            "one_stage",
            "engine.mindrlhf_home",
            contract.recognise,
            "a checkout of mindrlhf from 32599d0 (2025-02-21) to before f251809 (2025-03-24)",
        ),
        checkout(
            "engine.mindformers_home",
            "a checkout of mindformers' dev branch of February or March 2025, which mindrlhf's README names",
            window=">=1.4.0b1",  # what that branch called itself
        ),
    ),
    known={"": KNOWN},
    imports=("mindspore",),
    unrehearsed="grpo_one_stage.py needs mindformers' dev branch of February and March 2025, for which no"
    " replacement of Ascend operators is known",
    derive=derive,
    notes=lambda run: rules.notes(job(run)),
    memory=lambda run: cards.estimate(job(run)),
    shortage=lambda run, roles, have: warnings(roles, job(run).engine.device_memory_gib),
    load=lambda run, have: load(run),
    leftover=lambda settings, model: vocabulary.leftover_of_one_stage(model, settings["contract"]),
)
