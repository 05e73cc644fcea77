"""What may go wrong in a plan that is valid: `plan` shows it, `run` tells it before anything starts."""

from collections.abc import Sequence

from launch.machine.environment import memory_bytes
from pipeline import engines
from pipeline.config.kept import Kept
from pipeline.plan import reward_check
from pipeline.plan.graph import Plan
from pipeline.store.store import Store
from stages.fetch.config import source_warnings
from stages.models.memory import RoleMemory


def warnings(
    plan: Plan, store: Store, roles: Sequence[RoleMemory] | None = None, kept: Kept | None = None
) -> list[str]:
    """Of sources, of the reward and of memory."""
    config = plan.config
    engine = engines.of(config.engine.name)
    roles = engine.memory(config) if roles is None else roles
    found = [str(problem) for problem in source_warnings(config.model, config.dataset)]
    found += reward_check.warnings(plan, store, kept)
    return [*found, *engine.shortage(config, roles, memory_bytes())]
