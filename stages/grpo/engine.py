"""engine=local: the embedded trainer. Every stage is ours."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stages.base.engine import Engine, Load
from stages.base.graph import EXPORT_SECTIONS, TOKENIZE, Stage, rank_bytes
from stages.fetch.config import licence_files
from stages.grpo import checkpoint_files
from stages.grpo.rules import RUN

if TYPE_CHECKING:
    from stages.models.memory import RoleMemory
    from stages.sections import Sections


def stages(run: Sections) -> tuple[Stage, ...]:
    """Sft where it is wanted, then grpo, from rank shards."""
    weights = "sft" if run.sft.enabled else "split"
    size, ranks = run.model.weight_bytes, rank_bytes(run)
    trained = rank_bytes(run, run.model.trained_bytes)
    one_set = rank_bytes(run, 4 * run.model.num_parameters)["train"]  # of a checkpoint's three
    common = {"strategy": "strategy", "tokenize": "tokenize", "fetch": "fetch"}
    start = run.train.resume_from
    resumed = checkpoint_files.identity(Path(start)) if start else ()
    return (
        Stage(
            "convert",
            ("model", "convert"),
            {"fetch": "fetch"},
            bytes_written=size if run.convert.materialize else None,
        ),
        TOKENIZE,
        Stage("strategy", ("model", "layout")),
        Stage(
            "split",
            ("model", "layout", "split"),
            {"fetch": "fetch", "convert": "convert", "strategy": "strategy"},
            bytes_written=sum(ranks[role] for role in run.split.roles),
        ),
        Stage(
            "sft",
            ("model", "sft", "engine", "seed"),
            {"split": "split", **common},
            computes=True,
            bytes_written=sum(trained.values()),
            skipped=None if run.sft.enabled else "sft.enabled=false: grpo starts from split's weights",
        ),
        Stage(
            "grpo",
            ("model", "layout", "rollout", "reward", "train", "engine", "seed"),
            {"weights": weights, **common},
            external=resumed,
            workers=run.layout.train.cards,
            computes=True,
            # The result, and per checkpoint weights with both Adam moments; one more while it is written, and
            # one for the best.
            bytes_written=trained["train"] + 3 * one_set * (2 + run.train.keep_checkpoints),
        ),
        Stage(
            "evaluate",
            ("model", "rollout", "reward", "evaluate", "engine", "seed"),
            {"before": weights, "after": "grpo", **common},
            computes=True,
        ),
        Stage(
            "export",
            EXPORT_SECTIONS,
            {"grpo": "grpo", "evaluate": "evaluate", **common},
            external=licence_files(run.model),
            bytes_written=size,
        ),
    )


def memory(run: Sections) -> tuple[RoleMemory, ...]:
    """Bytes of one worker, per role."""
    from stages.grpo.memory import estimate  # here and below: a run with nothing to do need not load it

    return estimate(run.model, run.layout, run.train, run.rollout, run.tokenize.max_prompt_length)


def shortage(run: Sections, roles: Sequence[RoleMemory], have: int) -> list[str]:
    """What may not fit into this machine's memory of `have` bytes."""
    from stages.models.memory import shown

    workers = run.layout.train.cards
    low, high = (workers * sum(getattr(role, end) for role in roles) for end in ("low", "high"))
    if high <= have:
        return []
    verdict = "do not fit" if low > have else "may not fit"
    need, machine = shown(low, high), shown(have, have)
    return [
        f"memory: {workers} processes with {need} together {verdict} into this machine's {machine}; "
        "use a smaller model, a larger layout.train.micro_batch_num or a shorter rollout.max_tokens"
    ]


def load(run: Sections, have: int) -> Load:
    """What one step computes, and what a worker may occupy of `have` bytes."""
    train, rollout = run.train, run.rollout
    length = run.tokenize.max_prompt_length + rollout.max_tokens
    tokens = train.prompts_per_step * rollout.num_generations * length * train.num_iterations
    return Load(tokens, train.num_iterations, have // run.layout.train.cards)


ENGINE = Engine(
    name="local",
    stages=stages,
    rules=RUN,
    memory=memory,
    shortage=shortage,
    load=load,
    unrehearsed="engine=local runs on a CPU itself: `grpoflow run` with a small model is its rehearsal",
)
