"""Graph of engines whose program reads the fetched Hugging Face directory and shards it itself."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from stages import catalog
from stages.base.graph import EXPORT_SECTIONS, Stage
from stages.engines.job import tokenize_files
from stages.fetch.config import licence_files

if TYPE_CHECKING:
    from stages.sections import Sections


def unread_settings(settings: Any) -> frozenset[tuple[str, str]]:
    """Return the fields of section `engine` but its name, for stages that read none of them."""
    return frozenset(("engine", field.name) for field in fields(settings) if field.name != "name")


def stages(
    run: Sections,
    tokenize: str,
    train_data: str,
    unread: frozenset[tuple[str, str]],
    grpo: Stage,
    export: Stage,
) -> tuple[Stage, ...]:
    """Return the graph after fetch.

    Args:
        run: the configuration.
        tokenize: module of stage tokenize.
        train_data: file of the training prompts, in the format of the program.
        unread: settings that tokenize does not read.
        grpo: the stage, with what is special about the program; workers included.
        export: likewise.
    """
    reason = f"engine={run.engine.name}: FSDP shards the fetched weights while it loads them"
    return (
        replace(catalog.CONVERT, skipped=reason),
        replace(
            catalog.TOKENIZE,
            sections=(*catalog.TOKENIZE.sections, "engine"),
            version=1,
            entry=tokenize,
            required_files=lambda config: tokenize_files(train_data),
            unread=unread,
        ),
        replace(catalog.STRATEGY, skipped=reason),
        replace(catalog.SPLIT, skipped=reason),
        replace(
            catalog.SFT, skipped="sft.enabled=false: a warm start is model.path=DIR of an exported model"
        ),
        replace(
            grpo,
            sections=("dataset", "tokenize", *catalog.GRPO.sections),
            inputs={"tokenize": "tokenize", "fetch": "fetch"},
            computes=True,
        ),
        replace(
            export,
            sections=(*EXPORT_SECTIONS, "engine"),
            inputs={"grpo": "grpo", "fetch": "fetch"},
            external=licence_files(run.model),
            bytes_written=2 * run.model.weight_bytes,
        ),
        replace(
            catalog.EVALUATE,
            inputs={**catalog.EVALUATE.inputs, "before": "fetch", "after": "export"},
            computes=True,
        ),
    )
