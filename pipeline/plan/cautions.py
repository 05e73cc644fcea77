"""Warnings about a valid plan; `plan` shows them, and `run` prints them before anything starts."""

from collections.abc import Sequence
from pathlib import Path

from launch.machine.environment import memory_bytes
from pipeline import engines
from pipeline.plan import reward_check
from pipeline.plan.graph import Plan
from pipeline.store.store import Store
from stages.fetch.config import source_warnings
from stages.models.memory import RoleMemory
from stages.tokenize import counts
from stages.weights.index import unused_index


def warnings(plan: Plan, store: Store, roles: Sequence[RoleMemory] | None = None) -> list[str]:
    """Return warnings about sources, weight files, data, rewards and memory."""
    config = plan.config
    engine = engines.get(config.engine.name)
    roles = engine.memory(config) if roles is None else roles
    lines = [str(problem) for problem in source_warnings(config.model, config.dataset)]
    directory = config.model.path if config.model.source == "local" else None
    if directory is not None and (text := unused_index(Path(directory))):
        lines.append(f"model.path={text}")
    if any(spec.name == "tokenize" for spec in plan.specs):
        tokenized = counts.read_result(store.path(plan.spec("tokenize").key))
        lines += counts.warnings(tokenized.get("files", {}))
    lines += reward_check.warnings(plan, store)
    return [*lines, *engine.shortage(config, roles, memory_bytes())]
