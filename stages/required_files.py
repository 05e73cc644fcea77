"""Check of an artifact's files against its stage's declaration.

The store runs it at each commit and whenever it checks whether an artifact is complete.
"""

import importlib
from collections.abc import Mapping, Set
from fnmatch import fnmatchcase
from typing import Any

from stages.base.graph import RequiredFiles
from stages.catalog import RESULT, STAGES
from stages.engines import packages
from stages.engines.engine import Engine

MAY_BE_EMPTY = (".jsonl", ".db")
"""Suffixes of files that may have zero bytes."""


def missing_file(stage: str, config: Mapping[str, Any], files: Mapping[str, int]) -> str | None:
    """Return the first pattern of required files that an artifact has none of; None if the stage is unknown.

    Args:
        stage: the stage's name.
        config: config sections that the stage read, possibly written by an earlier version.
        files: relative path -> size in bytes.
    """
    if stage not in STAGES:
        return None
    try:
        patterns = list(_declared(stage, config)(config))
    except (KeyError, TypeError):  # sections of another version
        patterns = [RESULT] if stage in ("sft", "grpo") else []
    names = {name for name, size in files.items() if size or name.endswith(MAY_BE_EMPTY)}
    directories = {name.rpartition("/")[0] for name in names}
    for pattern in patterns:
        if not any(_matches(alternative, names, directories) for alternative in pattern.split("|")):
            return pattern.replace("|", " or ")
    return None


def _declared(stage: str, config: Mapping[str, Any]) -> RequiredFiles:
    """Return the declaration of the engine that made the artifact, or else the stage's own."""
    name = config["engine"]["name"] if "engine" in config else None
    if name in packages():
        engine: Engine[Any] = importlib.import_module(f"stages.engines.{name}.engine").ENGINE
        if stage in engine.required_files:
            return engine.required_files[stage]
    return STAGES[stage].required_files


def _matches(pattern: str, names: Set[str], directories: Set[str]) -> bool:
    """Return True if a file matches, without comparing every name for each of hundreds of ranks."""
    directory, _, last = pattern.rpartition("/")
    if last == "*" and directory in directories:
        return True
    return pattern in names or ("*" in pattern and any(fnmatchcase(name, pattern) for name in names))
