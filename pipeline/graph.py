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
from pipeline.fingerprint import fingerprint, without
from pipeline.store import Key
from stages.fetch.config import UNREAD_OF_FILES, external_files
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
    computes: bool = False
    """Whether each process occupies a card."""
    bytes_written: int | None = None
    """Bytes that the stage puts on disk, checkpoints included; None: unknown, small."""
    skipped: str | None = None
    """Why the stage is left out, or None."""
    unread: frozenset[tuple[str, str]] = frozenset()
    """(section, key) in `sections` that change nothing of the output, so that they are not fingerprinted."""


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
    computes: bool
    bytes_written: int | None

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

    def spec(self, stage: str) -> StageSpec:
        """The spec of one stage."""
        return next(spec for spec in self.specs if spec.name == stage)


def stages(config: Config) -> tuple[Stage, ...]:
    """The graph of engine=local, in order."""
    weights = "sft" if config.sft.enabled else "split"
    size = config.model.weight_bytes
    layouts = {role: config.layout.role(role) for role in ROLES}
    ranks = {role: size * layout.data_parallel * layout.context_parallel for role, layout in layouts.items()}
    common = {"strategy": "strategy", "tokenize": "tokenize", "fetch": "fetch"}
    body = (
        *_sources(config),
        Stage(
            "convert",
            1,
            ("model", "convert"),
            {"fetch": "fetch"},
            bytes_written=size if config.convert.materialize else None,
        ),
        Stage(
            "tokenize",
            2,
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
            2,
            ("model", "sft", "seed"),
            {"split": "split", **common},
            computes=True,
            bytes_written=sum(ranks.values()),
            skipped=None if config.sft.enabled else "sft.enabled=false: grpo starts from split's weights",
        ),
        Stage(
            "grpo",
            2,
            ("model", "layout", "rollout", "reward", "train", "seed"),
            {"weights": weights, **common},
            # Names the weights by their digests.
            external=(Path(resumed_from) / "state.json",)
            if (resumed_from := config.train.resume_from)
            else (),
            workers=config.layout.train.cards,
            computes=True,
            # The result, and per checkpoint weights with both Adam moments; one more while it is written, and
            # one for the best.
            bytes_written=ranks["train"] * (1 + 3 * (2 + config.train.keep_checkpoints)),
        ),
        Stage(
            "evaluate",
            1,
            ("model", "rollout", "reward", "evaluate", "seed"),
            {"before": weights, "after": "grpo", **common},
            computes=True,
        ),
        Stage(
            "export",
            1,
            ("model", "export"),
            {"grpo": "grpo", "strategy": "strategy", "fetch": "fetch"},
            bytes_written=size,
        ),
    )
    running = [stage.name for stage in body if stage.skipped is None]
    return (*body, Stage("report", 1, ("report",), {name: name for name in running}))


def _sources(config: Config) -> tuple[Stage, ...]:
    """The stages fetch and fetch_dataset, each with only the sections that its source reads."""
    model, dataset = config.model, config.dataset
    builtin = model.source == "builtin"
    trained = builtin and model.tokenizer_path is None  # a tokenizer is trained on the dataset's text
    downloaded = dataset.source in ("url", "modelscope")
    fetch = Stage(
        "fetch",
        1,
        ("model", *(["dataset"] if trained else []), "seed" if builtin else "fetch"),
        {"fetch_dataset": "fetch_dataset"} if trained and downloaded else {},
        external=external_files(model) + (external_files(dataset) if trained else ()),
        bytes_written=None if model.source == "local" else model.weight_bytes,
        # a download of hours must not be repeated for what only later stages read
        unread=frozenset() if builtin else frozenset(("model", key) for key in UNREAD_OF_FILES),
    )
    fetch_dataset = Stage(
        "fetch_dataset",
        1,
        ("dataset", "seed" if dataset.source == "builtin" else "fetch"),
        external=external_files(dataset),
    )
    return (fetch_dataset, fetch) if fetch.inputs else (fetch, fetch_dataset)


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
            without(part, stage.unread),
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
            stage.computes,
            stage.bytes_written,
        )
    return Plan(config, tuple(specs.values()), skipped)


def _by_name(files: tuple[Path, ...], digests: Mapping[str, str]) -> dict[str, str]:
    """Digests under file names without directories, numbered so that equal names stay apart."""
    return {f"{index}:{path.name}": digests[str(path)] for index, path in enumerate(files)}
