"""The plan: a pure function from a configuration to ordered stage specs.

Each stage names the sections that it reads and the stages whose artifacts it needs; from these
follow its fingerprint and with it the place of its artifact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.config import Config
from pipeline.fingerprint import fingerprint
from pipeline.rules import notes
from pipeline.store import Key
from stages.fetch.config import external_files
from stages.layout import ROLES

Digest = Callable[[Path], str]


@dataclass(frozen=True)
class Stage:
    """One stage as the graph knows it, before anything is hashed."""

    name: str
    version: int
    """Code version: raised by hand whenever the stage's output changes for the same input."""
    sections: tuple[str, ...]
    """Top-level parts of the configuration that the stage reads, and no more."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Input name -> name of the stage whose artifact it is."""
    external: tuple[Path, ...] = ()
    """The user's files that the stage reads."""
    workers: int = 1
    """Processes; more than one run under msrun."""
    bytes_written: int | None = None
    """Bytes that the stage puts on disk, checkpoints included; None: unknown, small."""
    skipped: str | None = None
    """Why the stage is left out, or None."""
    engine: str | None = None
    """An outside program does the work: `python -m stages ENGINE_prepare` writes its files, launch runs it,
    ENGINE_collect brings the result home. None: `python -m stages NAME` does all of it."""


@dataclass(frozen=True)
class StageSpec:
    """One stage of one run, ready to be looked up in the store or to be run."""

    key: Key
    version: int
    config: Mapping[str, Any]
    """The part of the configuration that the stage reads: section -> values."""
    inputs: Mapping[str, Key]
    external: Mapping[str, str]
    """User's file (as configured) -> SHA-256 of its content."""
    workers: int
    bytes_written: int | None
    engine: str | None

    @property
    def name(self) -> str:
        """The stage's name."""
        return self.key.stage


@dataclass(frozen=True)
class Plan:
    """All stages of one run, in an order in which they can run."""

    config: Config
    specs: tuple[StageSpec, ...]
    skipped: Mapping[str, str]
    """Stage -> why it is left out."""
    notes: tuple[str, ...] = ()
    """What the reader of a plan should know besides."""

    def spec(self, stage: str) -> StageSpec:
        """The spec of one stage."""
        return next(spec for spec in self.specs if spec.name == stage)


def stages(config: Config) -> tuple[Stage, ...]:
    """The graph, in order: the same for every engine up to the data, then the engine's own."""
    body = (*_sources(config), *(_local if config.engine.name == "local" else _mindrlhf)(config))
    running = [stage.name for stage in body if stage.skipped is None]
    return (*body, Stage("report", 1, ("report",), {name: name for name in running}))


def _sources(config: Config) -> tuple[Stage, ...]:
    builtin_tokenizer = config.model.source == "builtin" and config.model.tokenizer_path is None
    random_weights = config.model.source == "builtin"
    fetch_reads = (
        "model",
        *(["dataset"] if builtin_tokenizer else []),
        *(["seed"] if random_weights else []),
    )
    dataset_reads = ("dataset", *(["seed"] if config.dataset.source == "builtin" else []))
    fetch_files = external_files(config.model) + (external_files(config.dataset) if builtin_tokenizer else ())
    size = config.model.weight_bytes
    return (
        Stage(
            "fetch",
            1,
            fetch_reads,
            external=fetch_files,
            bytes_written=size if random_weights else None,
        ),
        Stage("fetch_dataset", 1, dataset_reads, external=external_files(config.dataset)),
    )


def _rank_bytes(config: Config) -> dict[str, int]:
    """Bytes of one role's rank directories, all ranks together."""
    layouts = {role: config.layout.role(role) for role in ROLES}
    size = config.model.weight_bytes
    return {role: size * layout.data_parallel * layout.context_parallel for role, layout in layouts.items()}


def _local(config: Config) -> tuple[Stage, ...]:
    weights = "sft" if config.sft.enabled else "split"
    size, ranks = config.model.weight_bytes, _rank_bytes(config)
    common = {"strategy": "strategy", "tokenize": "tokenize", "fetch": "fetch"}
    return (
        Stage(
            "convert",
            1,
            ("model", "convert"),
            {"fetch": "fetch"},
            bytes_written=size if config.convert.materialize else None,
        ),
        Stage(
            "tokenize",
            1,
            ("model", "dataset", "tokenize"),
            {"fetch": "fetch", "fetch_dataset": "fetch_dataset"},
        ),
        Stage("strategy", 1, ("model", "layout")),
        Stage(
            "split",
            1,
            ("model", "layout", "split"),
            {"fetch": "fetch", "convert": "convert", "strategy": "strategy"},
            bytes_written=sum(ranks[role] for role in config.split.roles),
        ),
        Stage(
            "sft",
            1,
            ("model", "sft", "seed"),
            {"split": "split", **common},
            bytes_written=sum(ranks.values()),
            skipped=None if config.sft.enabled else "sft.enabled=false: grpo starts from split's weights",
        ),
        Stage(
            "grpo",
            1,
            ("model", "layout", "rollout", "reward", "train", "seed"),
            {"weights": weights, **common},
            workers=config.layout.train.cards,
            # The result, and per checkpoint weights with both Adam moments; one more while it is written.
            bytes_written=ranks["train"] * (1 + 3 * (1 + config.train.keep_checkpoints)),
        ),
        Stage(
            "evaluate",
            1,
            ("model", "rollout", "reward", "evaluate", "seed"),
            {"before": weights, "after": "grpo", **common},
        ),
        Stage(
            "export",
            1,
            ("model", "export"),
            {"grpo": "grpo", "strategy": "strategy", "fetch": "fetch"},
            bytes_written=size,
        ),
    )


def _mindrlhf(config: Config) -> tuple[Stage, ...]:
    """What mindrlhf does itself is skipped; which that is depends on what it loads."""
    assert config.engine.name == "mindrlhf"
    form = config.engine.load_ckpt_format
    huggingface, ranked = form == "hf_safetensors", form == "ckpt"
    size, ranks = config.model.weight_bytes, _rank_bytes(config)
    reads = f"engine.load_ckpt_format={form}: mindrlhf"
    uncut = f"{reads} {'reads the Hugging Face directory itself' if huggingface else 'cuts it online'}"
    weights = {} if huggingface else {"weights": "split" if ranked else "convert"}
    after = {"strategy": "grpo", "tokenize": "tokenize", "fetch": "fetch"}
    return (
        Stage(
            "convert",
            1,
            ("model", "convert"),
            {"fetch": "fetch"},
            bytes_written=size,
            skipped=uncut if huggingface else None,
        ),
        Stage(
            "tokenize",
            1,
            ("model", "dataset", "tokenize"),
            {"fetch": "fetch", "fetch_dataset": "fetch_dataset"},
        ),
        Stage("strategy", 1, ("model", "layout"), skipped=None if ranked else uncut),
        Stage(
            "split",
            1,
            ("model", "layout", "split"),
            {"fetch": "fetch", "convert": "convert", "strategy": "strategy"},
            bytes_written=sum(ranks.values()),
            skipped=None if ranked else uncut,
        ),
        Stage("sft", 1, (), skipped="sft.enabled=false: mindrlhf starts from the fetched weights"),
        Stage(
            "grpo",
            1,
            ("model", "layout", "tokenize", "rollout", "reward", "train", "engine", "seed"),
            {**weights, "tokenize": "tokenize", "fetch": "fetch"},
            workers=config.layout.train.cards,
            # Per checkpoint weights, both Adam moments and the reference; one more while it is written.
            bytes_written=(3 * ranks["train"] + ranks["reference"])
            * (1 + config.train.keep_checkpoints)
            * (
                2
                if config.model.param_init_type == "float32" and config.model.torch_dtype != "float32"
                else 1
            ),
            engine="mindrlhf",
        ),
        Stage(
            "evaluate",
            1,
            ("model", "rollout", "reward", "evaluate", "seed"),
            {"before": "fetch", "after": "grpo", **after},
        ),
        Stage(
            "export",
            1,
            ("model", "export"),
            {"grpo": "grpo", "strategy": "grpo", "fetch": "fetch"},
            bytes_written=size,
        ),
    )


def plan(config: Config, digest: Digest) -> Plan:
    """Fingerprint every stage of a run.

    Args:
        config: the checked configuration.
        digest: SHA-256 of a user's file.

    Raises:
        ConfigError: a user's file cannot be read.
    """
    values = config.plain()
    specs: dict[str, StageSpec] = {}
    skipped = {}
    for stage in stages(config):
        if stage.skipped is not None:
            skipped[stage.name] = stage.skipped
            continue
        part = {section: values[section] for section in stage.sections}
        external = {str(path): digest(path) for path in stage.external}
        inputs = {name: specs[source].key for name, source in stage.inputs.items()}
        identity = fingerprint(
            stage.name,
            stage.version,
            part,
            {name: key.fingerprint for name, key in inputs.items()},
            _by_name(stage.external, external),
        )
        specs[stage.name] = StageSpec(
            Key(stage.name, identity),
            stage.version,
            part,
            inputs,
            external,
            stage.workers,
            stage.bytes_written,
            stage.engine,
        )
    return Plan(config, tuple(specs.values()), skipped, notes(config))


def _by_name(files: tuple[Path, ...], digests: Mapping[str, str]) -> dict[str, str]:
    """Digests under file names without directories, numbered so that equal names stay apart."""
    return {f"{index}:{path.name}": digests[str(path)] for index, path in enumerate(files)}
