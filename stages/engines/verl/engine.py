"""engine=verl: GRPO by verl on Ray, on NPUs or on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.graph import EXPORT_SECTIONS, Program, Stage
from stages.base.reader import part
from stages.engines.declaration import Engine, Known, Window
from stages.engines.verl import rules
from stages.engines.verl.config import VerlEngine
from stages.engines.verl.job import TRAIN_DATA, Job
from stages.fetch.config import licence_files

if TYPE_CHECKING:
    from stages.sections import Sections

GRPO = Program("verl_grpo", "stages.engines.verl.train", version=1)
EXPORT = Program("verl_export", "stages.engines.verl.export", version=1)
FAMILIES = ("qwen2", "qwen3", "qwen3_moe", "llama3")


def job(run: Sections) -> Job:
    """Return the sections that a verl run is rendered from."""
    return part(Job, run)


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
            sections=(
                "model",
                "layout",
                "dataset",
                "tokenize",
                "rollout",
                "reward",
                "train",
                "engine",
                "seed",
            ),
            inputs={"tokenize": "tokenize", "fetch": "fetch"},
            workers=job(run).cards,
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


_READ = "docs/ascend_tutorial/get_start/install_guidance.rst at 1dda039, 2026-08-13"
_MEASURED = "PyPI, 2026-09; verl 0.9.1 trains with it in tests"
PACKAGES: tuple[Window, ...] = (
    ("verl", "==0.9.1", "PyPI, 2026-09; its configuration is recorded for this version"),
    ("transformers", "==5.10.4", _READ),
    ("tensordict", ">=0.10,<0.11", _MEASURED),
    ("TransferQueue", ">=0.1.10,<0.2", "verl 0.9.1's metadata, 2026-09"),
    ("ray", ">=2.60,<2.61", _MEASURED),
    ("hydra-core", ">=1.3,<1.4", _MEASURED),
    ("accelerate", ">=1.15,<2", _MEASURED),
    ("peft", ">=0.21,<0.22", _MEASURED),
    ("numpy", ">=2,<3", _MEASURED),
    ("cachetools", ">=8,<9", "verl 0.9.1 imports it without declaring it, 2026-09"),
    ("uvicorn", ">=0.54,<1", "verl 0.9.1 imports it without declaring it, 2026-09"),
    ("fastapi", ">=0.165,<1", "verl 0.9.1 imports it without declaring it, 2026-09"),
)
NPU_PACKAGES: tuple[Window, ...] = (
    ("torch", "==2.10.0", _READ),
    ("torch_npu", "==2.10.0.post4", _READ),
    ("vllm", "==0.23.0", _READ),
    ("vllm-ascend", ">=0.23.0rc1,<0.24", _READ),
)
CPU_PACKAGES: tuple[Window, ...] = (("torch", "==2.13.0", _MEASURED),)
KNOWN: Mapping[str, Known] = {
    "0.9.1": Known(PACKAGES, ("cann", ">=9.1,<9.2", _READ), ("driver", "", "verl's guide names no version"))
}
"""Version of verl -> versions that work. The window moves with each release, about every quarter."""


def optional_packages(settings: Any) -> tuple[Window, ...]:
    """Return the packages of the device; for None, those of all devices."""
    if settings is None:
        return (*NPU_PACKAGES, *CPU_PACKAGES)
    if settings.device == "cpu":
        return CPU_PACKAGES
    return tuple(window for window in NPU_PACKAGES if settings.rollout == "vllm" or "vllm" not in window[0])


ENGINE = Engine(
    name="verl",
    trains=lambda family: family.name in FAMILIES,
    stages=stages,
    rules=rules.RULES,
    subject=lambda run, cards_per_node: job(run),
    required_files={
        "tokenize": lambda config: (catalog.RESULT, "test.mindrecord", "test.mindrecord.db", TRAIN_DATA),
        "grpo": lambda config: (catalog.RESULT, "actor/huggingface/config.json"),
    },
    programs=(GRPO, EXPORT),
    known=KNOWN,
    optional_packages=optional_packages,
    imports=("verl", "ray"),
    rehearsal="pipeline.rehearsal.verl",
    notes=lambda run: rules.notes(job(run)),
)
