"""What a run needs on each card, or in this machine's memory, and whether it is there."""

from __future__ import annotations

from collections.abc import Sequence

from launch.environment import memory_bytes
from pipeline.config import Config
from pipeline.rules import mindrlhf_job
from stages.memory import RoleMemory, shown


def estimate(config: Config) -> tuple[RoleMemory, ...]:
    """One entry per role."""
    if config.engine.name == "mindrlhf":
        from stages.mindrlhf import memory  # here: a run of another engine need not load it

        return memory.estimate(mindrlhf_job(config))
    from stages.grpo import memory as local

    return local.estimate(
        config.model, config.layout, config.train, config.rollout, config.tokenize.max_prompt_length
    )


def warnings(config: Config, roles: Sequence[RoleMemory], have: int | None = None) -> list[str]:
    """What may not fit, and by how much.

    Args:
        config: the configuration.
        roles: from `estimate`.
        have: bytes of this machine's memory; None: asked of it.
    """
    if config.engine.name == "mindrlhf":
        from stages.mindrlhf import memory

        return memory.warnings(mindrlhf_job(config), roles)
    have = memory_bytes() if have is None else have
    workers = config.layout.train.cards
    low, high = (workers * sum(getattr(role, end) for role in roles) for end in ("low", "high"))
    if high <= have:
        return []
    verdict = "do not fit" if low > have else "may not fit"
    need, machine = shown(low, high), shown(have, have)
    return [
        f"memory: {workers} processes with {need} together {verdict} into this machine's {machine}; "
        "use a smaller model, a larger layout.train.micro_batch_num or a shorter rollout.max_tokens"
    ]
