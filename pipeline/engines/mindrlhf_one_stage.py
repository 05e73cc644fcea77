"""engine=mindrlhf_one_stage: mindrlhf's grpo_one_stage.py, February and March 2025, under msrun."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.engines.machines import machines
from pipeline.engines.stage import TOKENIZE, Load, Stage, part, rank_bytes
from pipeline.errors import ConfigError, Problem
from stages.engines.mindrlhf.one_stage import contract, rules
from stages.engines.mindrlhf.one_stage import memory as cards
from stages.engines.mindrlhf.one_stage.config import OneStageEngine
from stages.engines.mindrlhf.one_stage.job import ROLES, Job
from stages.memory import RoleMemory, warnings

if TYPE_CHECKING:
    from pipeline.config.load import Config


def stages(config: Config) -> tuple[Stage, ...]:
    """Two checkpoints are cut, for training and for generation; the reference takes generation's."""
    size, ranks = config.model.weight_bytes, rank_bytes(config)
    widened = config.model.param_init_type == "float32" and config.model.torch_dtype != "float32"
    return (
        Stage("convert", ("model", "convert"), {"fetch": "fetch"}, bytes_written=size),
        TOKENIZE,
        Stage("strategy", ("model", "layout", "split")),
        Stage(
            "split",
            ("model", "layout", "split"),
            {"fetch": "fetch", "convert": "convert", "strategy": "strategy"},
            bytes_written=sum(ranks[role] for role in ROLES),
        ),
        Stage("sft", (), skipped="sft.enabled=false: the script starts from the fetched weights"),
        Stage(
            "grpo",
            ("model", "layout", "tokenize", "rollout", "reward", "train", "engine", "seed"),
            {"weights": "split", "tokenize": "tokenize", "fetch": "fetch"},
            workers=config.layout.train.cards,
            bytes_written=ranks["train"] * (2 if widened else 1),
            computes=True,
            engine="mindrlhf_one_stage",
        ),
        Stage(
            "evaluate",
            ("model", "rollout", "reward", "evaluate", "seed"),
            {
                "before": "fetch",
                "after": "grpo",
                "strategy": "grpo",
                "tokenize": "tokenize",
                "fetch": "fetch",
            },
            computes=True,
        ),
        Stage(
            "export",
            ("model", "export"),
            {"grpo": "grpo", "strategy": "grpo", "fetch": "fetch"},
            bytes_written=size,
        ),
    )


def derive(values: dict[str, Any]) -> None:
    """The contract of the user's checkout, and the files that the script reads."""
    engine, split = values["engine"], values["split"]
    if engine["contract"] == "auto":
        engine["contract"] = contract.of(engine["mindrlhf_home"])
    values["convert"] |= {"materialize": True, "format": "ckpt"}
    split |= {"format": "ckpt", "roles": list(ROLES)}


def problems(config: Config) -> Iterator[Problem]:
    """Rules of the script."""
    yield from rules.check(job(config), config.sft.enabled)


def needs(config: Config) -> Iterator[Problem]:
    """The checkout, and machines for all cards."""
    engine = _engine(config)
    if engine.mindrlhf_home is None:
        rule = "is required to run: a checkout of mindspore-ai/mindrlhf from 32599d0 to before f251809"
        yield Problem("engine.mindrlhf_home", None, rule, "clone it and give its directory")
    yield from machines(config, engine.container, "engine.container")


def notes(config: Config) -> tuple[str, ...]:
    """What a plan should say besides its stages."""
    return tuple(rules.notes(job(config)))


def memory(config: Config) -> tuple[RoleMemory, ...]:
    """Bytes of one card, per role."""
    return cards.estimate(job(config))


def shortage(config: Config, roles: Sequence[RoleMemory], have: int | None = None) -> list[str]:
    """What may not fit on a card; `have` is not asked, engine.device_memory_gib says it."""
    return warnings(roles, _engine(config).device_memory_gib)


def load(config: Config) -> Load:
    """What one step computes, and what a card holds."""
    run = job(config)
    return Load(run.samples * run.seq_length, run.samples // run.samples_per_update, cards.device_bytes(run))


def job(config: Config) -> Job:
    """The sections that a run is rendered from."""
    return part(Job, config)


def _engine(config: Config) -> OneStageEngine:
    assert config.engine.name == "mindrlhf_one_stage"
    return config.engine


def rehearsed(config: Config) -> Mapping[str, str | None]:
    """There is none."""
    rule = (
        "grpo_one_stage.py stands on mindformers' dev branch of February and March 2025; what would"
        " stand in for a card there is not known"
    )
    raise ConfigError([Problem("engine", config.engine.name, rule)])
