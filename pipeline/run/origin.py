"""Facts about a run that its report and its model card show besides its artifacts."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipeline.config.compose import PRESET
from pipeline.config.experiments import PRESETS
from pipeline.config.grammar import key_of
from pipeline.config.load import defaults
from pipeline.config.sections import Config
from pipeline.plan.graph import StageSpec
from pipeline.store import history
from pipeline.store.attempt import find_log
from pipeline.store.history import Record
from pipeline.store.store import Store
from stages.base.identity import identity
from stages.base.keys import flat


def facts(spec: StageSpec, store: Store, run: str) -> dict[str, Any]:
    """Return values that a stage shows, but that do not change the meaning of its artifact."""
    record = history.runs(store.root).get(run) if spec.name in ("export", "report") else None
    if record is None:
        return {}
    if spec.name == "export":  # the model card shows the command
        return {"command": published(record.overrides, record.config)}
    # the report shows its run, deviations from the defaults, and which stages were cached
    shown = origin(store.root, record, store.path(spec.key))
    return {"defaults": defaults().plain(), "run_started": record.started, "origin": shown}


def published(overrides: list[str], config: Mapping[str, Any]) -> list[str]:
    """Return the overrides of a run that are part of fingerprints, so without paths and machine settings."""
    keys = [*flat(identity(Config, config)), "experiment", PRESET, PRESETS]
    return [
        override
        for override in overrides
        if any(f"{key}.".startswith(f"{key_of(override)}.") for key in keys)
    ]


def origin(root: Path, record: Record, page: Path) -> dict[str, Any]:
    """Return the fields of the report's Origin; its links are relative to the directory `page`."""
    files = {stage: find_log(root, artifact) for stage, artifact in record.artifacts.items()}
    logs = {
        stage: quote(os.path.relpath(log, page), safe="/+") for stage, log in files.items() if log is not None
    }
    return {"run": record.id, "name": record.name or "", "command": record.command, "logs": logs}
