"""engine=mindspeed_rl: GRPO by Ascend/MindSpeed-RL on Ray, with its own converter and its own data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from launch import engine as launch
from pipeline.engines.machines import machines
from pipeline.engines.stage import Load, Stage, as_text, part
from pipeline.errors import Problem
from stages.engines.mindspeed_rl import contract, rules
from stages.engines.mindspeed_rl import memory as cards
from stages.engines.mindspeed_rl.config import MindspeedRlEngine
from stages.engines.mindspeed_rl.job import Job
from stages.layout import ROLES
from stages.memory import RoleMemory, warnings

if TYPE_CHECKING:
    from pipeline.config.load import Config


def stages(config: Config) -> tuple[Stage, ...]:
    """Its own data and weights, there and back; evaluate reads what comes back."""
    engine, size = _engine(config), config.model.weight_bytes
    own = "engine=mindspeed_rl: its converter cuts the weights, and Megatron needs no strategy files"
    return (
        Stage(
            "convert",
            ("model", "layout", "engine"),
            {"fetch": "fetch"},
            bytes_written=size,
            unread=_reads("contract") | {("layout", key) for key in ("name", "generate", "reference")},
            engine="mindspeed_rl_convert",
        ),
        Stage(
            "tokenize",
            ("model", "dataset", "tokenize", "engine"),
            {"fetch": "fetch", "fetch_dataset": "fetch_dataset"},
            external=contract.files_read(engine.mindspeed_rl_home),
            unread=_reads("contract", "prompt_type", "sft"),
            engine="mindspeed_rl_tokenize",
        ),
        Stage("strategy", (), skipped=own),
        Stage("split", (), skipped=own),
        Stage("sft", (), skipped="sft.enabled=false: mindspeed_rl starts from the fetched weights"),
        Stage(
            "grpo",
            ("model", "layout", "tokenize", "rollout", "train", "engine", "seed"),
            {"weights": "convert", "tokenize": "tokenize", "fetch": "fetch"},
            workers=job(config).npus,
            # Per checkpoint weights, and float32 weights with both moments; one more while it is written.
            bytes_written=7 * size * (1 + config.train.keep_checkpoints),
            computes=True,
            engine="mindspeed_rl_grpo",
        ),
        Stage(
            "export",
            ("model", "layout", "export", "engine"),
            {"grpo": "grpo", "fetch": "fetch"},
            bytes_written=3 * size,  # the converter's result, the artifact, and a copy of the fetched weights
            unread=_reads("contract") | {("layout", role) for role in ("name", *ROLES)},
            engine="mindspeed_rl_export",
        ),
        Stage(
            "evaluate",
            ("model", "rollout", "reward", "evaluate", "seed"),
            {"before": "fetch", "after": "export", "tokenize": "tokenize", "fetch": "fetch"},
            computes=True,
        ),
    )


def derive(values: dict[str, Any]) -> None:
    """The contract of the user's checkout."""
    engine = values["engine"]
    for key in ("convert_env", "runtime_env"):
        engine[key] = {name: as_text(value) for name, value in engine[key].items()}
    if engine["contract"] == "auto":
        engine["contract"] = contract.of(engine["mindspeed_rl_home"])


def problems(config: Config) -> Iterator[Problem]:
    """Rules of MindSpeed-RL and Megatron."""
    run = job(config)
    nodes = len(launch.nodes_of(run.npus, config.launcher))
    yield from rules.check(run, config.sft.enabled, nodes)


def needs(config: Config) -> Iterator[Problem]:
    """The checkout, its converter, and machines for all cards."""
    engine = _engine(config)
    if engine.mindspeed_rl_home is None:
        rule = "is required to run: a checkout of Ascend/MindSpeed-RL"
        yield Problem("engine.mindspeed_rl_home", None, rule, "clone it and give its directory")
    yield from contract.converter(engine)
    yield from machines(config, engine.container, "engine.container", job(config).npus)


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
    run, iterations = job(config), config.train.num_iterations
    updates = config.train.prompts_per_step // run.mini_batch_size * iterations
    return Load(run.samples * run.seq_length * iterations, updates, cards.device_bytes(run))


def job(config: Config) -> Job:
    """The sections that a MindSpeed-RL run is rendered from."""
    return part(Job, config)


def _engine(config: Config) -> MindspeedRlEngine:
    assert config.engine.name == "mindspeed_rl"
    return config.engine


def _reads(*names: str) -> frozenset[tuple[str, str]]:
    """All of the engine section but its name and these keys."""
    return frozenset(
        ("engine", one.name) for one in fields(MindspeedRlEngine) if one.name not in ("name", *names)
    )


def rehearsed(config: Config) -> Mapping[str, str | None]:
    """What is executed; the older window's converter lies in MindSpeed-RL itself."""
    assert config.engine.name == "mindspeed_rl"
    engine = config.engine
    found = {"engine.mindspeed_rl_home": engine.mindspeed_rl_home}
    if engine.contract != "667a547":
        found["engine.mindspeed_llm_home"] = engine.mindspeed_llm_home
    return found
