"""engine=mindrlhf: GRPO by mindspore-ai/mindrlhf under msrun."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.engines.machines import machines
from pipeline.engines.stage import TOKENIZE, Load, Stage, part, rank_bytes
from pipeline.errors import ConfigError, Problem
from stages.engines.mindrlhf import contract, rules, vocabulary
from stages.engines.mindrlhf import memory as cards
from stages.engines.mindrlhf import notes as reading
from stages.engines.mindrlhf.job import Job
from stages.layout import ROLES
from stages.memory import GIB, RoleMemory
from stages.split_config import check_split

if TYPE_CHECKING:
    from pipeline.config.load import Config

MOST_SEQUENCES = 1024
"""mindrlhf's default for max_num_seqs (grpo_configs.py); vLLM refuses more than max_model_len."""


def stages(config: Config) -> tuple[Stage, ...]:
    """What mindrlhf does itself is skipped; which that is depends on what it loads."""
    assert config.engine.name == "mindrlhf"
    form = config.engine.load_ckpt_format
    huggingface, ranked = form == "hf_safetensors", form == "ckpt"
    size, ranks = config.model.weight_bytes, rank_bytes(config)
    reads = f"engine.load_ckpt_format={form}: mindrlhf"
    uncut = f"{reads} {'reads the Hugging Face directory itself' if huggingface else 'cuts it online'}"
    foreign = config.model.deepseek_v3 is not None
    if foreign:
        ranks["train"] = size  # experts and the parallel optimizer's shares lie on one card each
        uncut = f"DeepSeek-V3: Qwen2 models only; model.path holds the weights that mindrlhf reads ({form})"
    weights = {} if huggingface or foreign else {"weights": "split" if ranked else "convert"}
    widened = config.model.param_init_type == "float32" and config.model.torch_dtype != "float32"
    after = {"strategy": "grpo", "tokenize": "tokenize", "fetch": "fetch"}
    return (
        Stage(
            "convert",
            ("model", "convert"),
            {"fetch": "fetch"},
            bytes_written=size,
            skipped=uncut if huggingface or foreign else None,
        ),
        TOKENIZE,
        Stage("strategy", ("model", "layout"), skipped=None if ranked else uncut),
        Stage(
            "split",
            ("model", "layout", "split"),
            {"fetch": "fetch", "convert": "convert", "strategy": "strategy"},
            bytes_written=sum(ranks.values()),
            skipped=None if ranked else uncut,
        ),
        Stage("sft", (), skipped="sft.enabled=false: mindrlhf starts from the fetched weights"),
        Stage(
            "grpo",
            ("model", "layout", "tokenize", "rollout", "reward", "train", "engine", "seed"),
            {**weights, "tokenize": "tokenize", "fetch": "fetch"},
            workers=config.layout.train.cards,
            # Per checkpoint weights, both Adam moments and the reference; one more while it is written.
            bytes_written=(3 * ranks["train"] + ranks["reference"])
            * (1 + config.train.keep_checkpoints)
            * (2 if widened else 1),
            computes=True,
            engine="mindrlhf",
        ),
        Stage(
            "evaluate",
            ("model", "rollout", "reward", "evaluate", "seed"),
            {"before": "fetch", "after": "grpo", **after},
            computes=True,
            skipped="DeepSeek-V3: only Qwen2 models are evaluated" if foreign else None,
        ),
        Stage(
            "export",
            ("model", "export"),
            {"grpo": "grpo", "strategy": "grpo", "fetch": "fetch"},
            bytes_written=size,
            skipped="DeepSeek-V3: only Qwen2 models are exported; merge grpo's with mindformers"
            if foreign
            else None,
        ),
    )


def derive(values: dict[str, Any]) -> None:
    """The contract of the user's checkout, the files that mindrlhf reads, and as many sequences as fit."""
    engine, convert, split = values["engine"], values["convert"], values["split"]
    if engine["contract"] == "auto":
        engine["contract"] = contract.of(engine["mindrlhf_home"], values["model"]["deepseek_v3"] is not None)
    if engine["tokenizer"] == "auto":
        engine["tokenizer"] = vocabulary.tokenizer_of(values["model"])
    if engine["load_ckpt_format"] == "ms_safetensors":
        convert |= {"materialize": True, "format": "safetensors"}
    elif engine["load_ckpt_format"] == "ckpt":
        convert |= {"materialize": True, "format": "ckpt"}
        split["format"] = "ckpt"
    if engine["max_num_seqs"] is None:
        engine["max_num_seqs"] = MOST_SEQUENCES  # stays, where other values cannot be read
        with contextlib.suppress(ConfigError):
            engine["max_num_seqs"] = min(MOST_SEQUENCES, Job.of(values).max_model_len)


def problems(config: Config) -> Iterator[Problem]:
    """Rules of mindrlhf and mindformers."""
    assert config.engine.name == "mindrlhf"
    yield from rules.check(job(config), config.sft.enabled)
    if config.engine.load_ckpt_format == "ckpt" and config.model.deepseek_v3 is None:
        yield from check_split(config.split)
        missing = [role for role in ROLES if role not in config.split.roles]
        if missing:
            rule = f"lacks {', '.join(missing)}, which mindrlhf loads (ours: stages/engines/mindrlhf)"
            yield Problem("split.roles", list(config.split.roles), rule, "set it to null")


def needs(config: Config) -> Iterator[Problem]:
    """The checkout, and machines for all cards."""
    assert config.engine.name == "mindrlhf"
    if config.engine.mindrlhf_home is None:
        rule = "is required to run: a checkout of mindspore-ai/mindrlhf"
        yield Problem("engine.mindrlhf_home", None, rule, "clone it and give its directory")
    yield from machines(config, config.engine.container, "engine.container")


def notes(config: Config) -> tuple[str, ...]:
    """What a plan should say besides its stages."""
    return tuple(reading.notes(job(config)))


def memory(config: Config) -> tuple[RoleMemory, ...]:
    """Bytes of one card, per role."""
    return cards.estimate(job(config))


def shortage(config: Config, roles: Sequence[RoleMemory], have: int | None = None) -> list[str]:
    """What may not fit on a card; `have` is not asked, engine.device_memory_gib says it."""
    return cards.warnings(job(config), roles)


def load(config: Config) -> Load:
    """What one step computes, and what a card holds."""
    assert config.engine.name == "mindrlhf"
    run, iterations = job(config), config.train.num_iterations
    tokens = run.packs * run.seq_length * iterations
    updates = run.packs // run.packs_per_update * iterations
    return Load(tokens, updates, config.engine.device_memory_gib * GIB)


def job(config: Config) -> Job:
    """The sections that a mindrlhf run is rendered from."""
    assert config.engine.name == "mindrlhf"
    return part(Job, config)


def rehearsed(config: Config) -> Mapping[str, str | None]:
    """Both, for the wheel of mindformers lacks research/."""
    assert config.engine.name == "mindrlhf"
    engine = config.engine
    return {"engine.mindrlhf_home": engine.mindrlhf_home, "engine.mindformers_home": engine.mindformers_home}
