"""engine=local: the embedded trainer. Every stage is ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.engines.stage import TOKENIZE, Load, Stage, rank_bytes
from pipeline.errors import ConfigError, Problem
from stages.grpo import checkpoint_files
from stages.grpo import rules as trainer
from stages.sft_config import check_examples, check_sft
from stages.split_config import check_split

if TYPE_CHECKING:
    from pipeline.config.load import Config
    from stages.memory import RoleMemory


def stages(config: Config) -> tuple[Stage, ...]:
    """Sft where it is wanted, then grpo, from rank shards."""
    weights = "sft" if config.sft.enabled else "split"
    size, ranks = config.model.weight_bytes, rank_bytes(config)
    trained = rank_bytes(config, config.model.trained_bytes)
    one_set = rank_bytes(config, 4 * config.model.num_parameters)["train"]  # of a checkpoint's three
    common = {"strategy": "strategy", "tokenize": "tokenize", "fetch": "fetch"}
    start = config.train.resume_from
    resumed = checkpoint_files.identity(Path(start)) if start else ()
    return (
        Stage(
            "convert",
            ("model", "convert"),
            {"fetch": "fetch"},
            bytes_written=size if config.convert.materialize else None,
        ),
        TOKENIZE,
        Stage("strategy", ("model", "layout")),
        Stage(
            "split",
            ("model", "layout", "split"),
            {"fetch": "fetch", "convert": "convert", "strategy": "strategy"},
            bytes_written=sum(ranks[role] for role in config.split.roles),
        ),
        Stage(
            "sft",
            ("model", "sft", "engine", "seed"),
            {"split": "split", **common},
            computes=True,
            bytes_written=sum(trained.values()),
            skipped=None if config.sft.enabled else "sft.enabled=false: grpo starts from split's weights",
        ),
        Stage(
            "grpo",
            ("model", "layout", "rollout", "reward", "train", "engine", "seed"),
            {"weights": weights, **common},
            external=resumed,
            workers=config.layout.train.cards,
            computes=True,
            # The result, and per checkpoint weights with both Adam moments; one more while it is written, and
            # one for the best.
            bytes_written=trained["train"] + 3 * one_set * (2 + config.train.keep_checkpoints),
        ),
        Stage(
            "evaluate",
            ("model", "rollout", "reward", "evaluate", "engine", "seed"),
            {"before": weights, "after": "grpo", **common},
            computes=True,
        ),
        Stage(
            "export",
            ("model", "export"),
            {"grpo": "grpo", "strategy": "strategy", "fetch": "fetch"},
            bytes_written=size,
        ),
    )


def derive(values: dict[str, Any]) -> None:
    """Nothing depends on this engine."""


def problems(config: Config) -> Iterator[Problem]:
    """Rules of the embedded trainer."""
    sft = config.sft.enabled
    yield from trainer.check_layout(config.layout, config.train)
    yield from check_split(config.split)
    yield from trainer.check_split(config.split, config.train, sft)
    rows = config.dataset.train_rows
    if rows is not None:  # of files, how many there are at most
        yield from trainer.check_rows(config.train, rows)
    if sft:
        yield from check_sft(config.sft)
        if rows is not None and config.sft_data.path is None:
            yield from check_examples(config.sft, max(0, rows - config.sft.check_prompts))
    if config.model.deepseek_v3 is not None:
        rule = "engine=local trains Qwen2 models (ours: stages/grpo/model.py)"
        yield Problem("model.deepseek_v3", config.model.name, rule, "choose engine=mindrlhf")
    if config.model.qkv_concat:
        rule = "engine=local reads separate q, k, v and gate, up weights (ours: stages/grpo/model.py)"
        yield Problem("model.qkv_concat", True, rule, "set it to false")


def needs(config: Config) -> Iterator[Problem]:
    """A run needs no more than a plan."""
    return iter(())


def notes(config: Config) -> tuple[str, ...]:
    """Nothing besides the stages."""
    return ()


def memory(config: Config) -> tuple[RoleMemory, ...]:
    """Bytes of one worker, per role."""
    from stages.grpo.memory import estimate  # here and below: a run with nothing to do need not load it

    return estimate(
        config.model, config.layout, config.train, config.rollout, config.tokenize.max_prompt_length
    )


def shortage(config: Config, roles: Sequence[RoleMemory], have: int | None = None) -> list[str]:
    """What may not fit into this machine's memory; `have` in bytes, None: asked of it."""
    from launch.machine.environment import memory_bytes
    from stages.memory import shown

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


def load(config: Config) -> Load:
    """What one step computes, and what a worker may occupy."""
    from launch.machine.environment import memory_bytes

    train, rollout = config.train, config.rollout
    length = config.tokenize.max_prompt_length + rollout.max_tokens
    tokens = train.prompts_per_step * rollout.num_generations * length * train.num_iterations
    return Load(tokens, train.num_iterations, memory_bytes() // config.layout.train.cards)


def rehearsed(config: Config) -> Mapping[str, str | None]:
    """There is none."""
    rule = "engine=local runs on a CPU itself: `grpoflow run` with a small model is its rehearsal"
    raise ConfigError([Problem("engine", config.engine.name, rule)])
