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
from pipeline.rules import notes
from pipeline.store import Key
from stages.fetch.config import UNREAD_OF_FILES, external_files
from stages.layout import ROLES

Digest = Callable[[Path], str]


VERSIONS = {
    "fetch": 1, "fetch_dataset": 1, "convert": 1, "tokenize": 2, "strategy": 1, "split": 1, "sft": 2,
    "grpo": 2, "evaluate": 1, "export": 1, "report": 1,
}  # fmt: skip
"""Code versions: raised by hand whenever a stage's output changes for the same input."""

UNREAD_OF_TRAIN = frozenset({("train", "loggers")})
"""Who else is told of a training changes nothing of what is trained."""


@dataclass(frozen=True)
class Stage:
    """One stage as the graph knows it, before anything is hashed."""

    name: str
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
    computes: bool
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
    return (*body, Stage("report", ("report",), {name: name for name in running}))


def _rank_bytes(config: Config, size: int) -> dict[str, int]:
    """Bytes of one role's rank directories, all ranks together, where the whole model takes `size`."""
    layouts = {role: config.layout.role(role) for role in ROLES}
    return {role: size * layout.data_parallel * layout.context_parallel for role, layout in layouts.items()}


def _local(config: Config) -> tuple[Stage, ...]:
    weights = "sft" if config.sft.enabled else "split"
    size, ranks = config.model.weight_bytes, _rank_bytes(config, config.model.weight_bytes)
    trained = _rank_bytes(config, config.model.trained_bytes)
    one_set = _rank_bytes(config, 4 * config.model.num_parameters)["train"]  # of a checkpoint's three
    common = {"strategy": "strategy", "tokenize": "tokenize", "fetch": "fetch"}
    start = config.train.resume_from
    resumed = (Path(start) / "state.json",) if start else ()  # it names the weights by their digests
    return (
        Stage(
            "convert",
            ("model", "convert"),
            {"fetch": "fetch"},
            bytes_written=size if config.convert.materialize else None,
        ),
        Stage(
            "tokenize",
            ("model", "dataset", "tokenize"),
            {"fetch": "fetch", "fetch_dataset": "fetch_dataset"},
        ),
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
            unread=UNREAD_OF_TRAIN,
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


def _mindrlhf(config: Config) -> tuple[Stage, ...]:
    """What mindrlhf does itself is skipped; which that is depends on what it loads."""
    assert config.engine.name == "mindrlhf"
    form = config.engine.load_ckpt_format
    huggingface, ranked = form == "hf_safetensors", form == "ckpt"
    size, ranks = config.model.weight_bytes, _rank_bytes(config, config.model.weight_bytes)
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
        Stage(
            "tokenize",
            ("model", "dataset", "tokenize"),
            {"fetch": "fetch", "fetch_dataset": "fetch_dataset"},
        ),
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
            unread=UNREAD_OF_TRAIN,
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


def _sources(config: Config) -> tuple[Stage, ...]:
    """The stages fetch and fetch_dataset, each with only the sections that its source reads."""
    model, dataset = config.model, config.dataset
    builtin = model.source == "builtin"
    trained = builtin and model.tokenizer_path is None  # a tokenizer is trained on the dataset's text
    downloaded = dataset.source in ("url", "modelscope")
    fetch = Stage(
        "fetch",
        ("model", *(["dataset"] if trained else []), "seed" if builtin else "fetch"),
        {"fetch_dataset": "fetch_dataset"} if trained and downloaded else {},
        external=external_files(model) + (external_files(dataset) if trained else ()),
        bytes_written=None if model.source == "local" else model.weight_bytes,
        # a download of hours must not be repeated for what only later stages read
        unread=frozenset() if builtin else frozenset(("model", key) for key in UNREAD_OF_FILES),
    )
    fetch_dataset = Stage(
        "fetch_dataset",
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
    # younger than stores in use: a Qwen2's artifacts keep their identities
    absent = frozenset({("model", "deepseek_v3")} if config.model.deepseek_v3 is None else ())
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
            VERSIONS[stage.name],
            without(part, stage.unread | absent),
            {name: key.fingerprint for name, key in inputs.items()},
            _by_name(stage.external, external),
        )
        specs[stage.name] = StageSpec(
            Key(stage.name, identity),
            VERSIONS[stage.name],
            part,
            inputs,
            external,
            stage.workers,
            stage.computes,
            stage.bytes_written,
            stage.engine,
        )
    return Plan(config, tuple(specs.values()), skipped, notes(config))


def _by_name(files: tuple[Path, ...], digests: Mapping[str, str]) -> dict[str, str]:
    """Digests under file names without directories, numbered so that equal names stay apart."""
    return {f"{index}:{path.name}": digests[str(path)] for index, path in enumerate(files)}
