"""engine=verl: GRPO by verl on Ray, on NPUs or on a CPU."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.graph import EXPORT_SECTIONS, Program, Stage
from stages.engines import programs
from stages.engines.declaration import Engine, Known, Window
from stages.engines.verl import rules
from stages.engines.verl.config import VerlEngine
from stages.engines.verl.job import TRAIN_DATA, Job
from stages.engines.verl.upstream import FIELDS
from stages.fetch.config import licence_files

if TYPE_CHECKING:
    from stages.sections import Sections

GRPO = Program("verl_grpo", "stages.engines.verl.train", version=1)
EXPORT = Program("verl_export", "stages.engines.verl.export", version=2)
FAMILIES = ("qwen2", "qwen3", "qwen3_moe", "llama3")


def stages(run: Sections) -> tuple[Stage, ...]:
    """Return the graph after fetch; verl reads the fetched directory, and evaluate the export."""
    size = run.model.weight_bytes
    reason = "engine=verl: FSDP shards the fetched weights while it loads them"
    unread = frozenset(("engine", field.name) for field in fields(VerlEngine) if field.name != "name")
    return (
        replace(catalog.CONVERT, skipped=reason),
        replace(
            catalog.TOKENIZE,
            sections=(*catalog.TOKENIZE.sections, "engine"),
            version=1,
            entry="stages.engines.verl.tokenize",
            unread=unread,
        ),
        replace(catalog.STRATEGY, skipped=reason),
        replace(catalog.SPLIT, skipped=reason),
        replace(
            catalog.SFT, skipped="sft.enabled=false: a warm start is model.path=DIR of an exported model"
        ),
        replace(
            catalog.GRPO,
            sections=("dataset", "tokenize", *catalog.GRPO.sections),
            inputs={"tokenize": "tokenize", "fetch": "fetch"},
            workers=Job.from_run(run).cards,
            # per checkpoint: float32 weights with both moments; one more while it is written
            bytes_written=12 * run.model.num_parameters * (1 + run.train.keep_checkpoints),
            computes=True,
            program=GRPO,
        ),
        replace(
            catalog.EXPORT,
            sections=(*EXPORT_SECTIONS, "engine"),
            inputs={"grpo": "grpo", "fetch": "fetch"},
            external=licence_files(run.model),
            bytes_written=2 * size,
            unread=unread - {("engine", "strategy")},
            program=EXPORT,
        ),
        replace(
            catalog.EVALUATE,
            inputs={**catalog.EVALUATE.inputs, "before": "fetch", "after": "export"},
            computes=True,
        ),
    )


def windows(*groups: str) -> tuple[Window, ...]:
    """Return the versions that work, from groups of versions.yaml."""
    return programs.windows(FIELDS / "versions.yaml", *groups)


def optional_packages(settings: Any) -> tuple[Window, ...]:
    """Return the packages of the device; for None, those of all devices."""
    if settings is None:
        return windows("npu", "vllm", "cpu")
    if settings.device == "cpu":
        return windows("cpu")
    return windows("npu", "vllm") if settings.rollout == "vllm" else windows("npu")


ENGINE = Engine(
    name="verl",
    keeps_tags=True,
    trains=lambda family: family.name in FAMILIES,
    stages=stages,
    rules=rules.RULES,
    subject=lambda run, cards_per_node: Job.from_run(run),
    required_files={
        "tokenize": lambda config: (catalog.RESULT, "test.mindrecord", "test.mindrecord.db", TRAIN_DATA),
        "grpo": lambda config: (catalog.RESULT, "actor/huggingface/config.json"),
    },
    programs=(GRPO, EXPORT),
    known={"0.9.1": Known(windows("all"), *windows("machine"))},
    optional_packages=optional_packages,
    imports=("verl", "ray"),
    rehearsal="pipeline.rehearsal.verl",
    notes=lambda run: rules.notes(Job.from_run(run)),
)
