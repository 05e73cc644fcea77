"""The plan: a pure function from a configuration to ordered stage specs.

Each stage names the sections that it reads and the stages whose artifacts it needs; from these
follow its fingerprint and with it the place of its artifact.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipeline import engines
from pipeline.config.kept import Kept
from pipeline.config.load import Config
from pipeline.config.plain import plain
from pipeline.fingerprint import fingerprint, without
from pipeline.plan.target import WHOLE, Target
from pipeline.store.store import Key
from stages.base.graph import Program, Stage
from stages.base.identity import field_types, identity
from stages.fetch.config import UNREAD_OF_FILES, external_files
from stages.report.artifacts import READS
from stages.rewards.config import BUILTIN, RewardConfig

Digest = Callable[[Path], str]


VERSIONS = {
    "fetch": 1, "fetch_dataset": 1, "convert": 1, "tokenize": 3, "strategy": 1, "split": 1, "sft": 4,
    "grpo": 4, "evaluate": 3, "export": 2, "report": 4,
}  # fmt: skip
"""Code versions: raised by hand whenever a stage's output changes for the same input. An outside program
has its own (stages.base.graph.Program): a change here costs it no card time."""


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
    program: Program | None
    """Does its work; None: we do."""
    reads: tuple[str, ...] = ()
    """All the files that it reads of its inputs, besides their manifests; empty: any."""
    first: Key | None = None
    """What its artifact was before the stage was built anew, `edition` times; None: it never was."""
    edition: int = 0

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
    target: Target = WHOLE
    names: frozenset[str] | None = None
    """Stages that are asked for; None: all."""

    @property
    def asked(self) -> tuple[StageSpec, ...]:
        """The specs of what is asked for, in order."""
        return tuple(spec for spec in self.specs if self.names is None or spec.name in self.names)

    def spec(self, stage: str) -> StageSpec:
        """The spec of one stage."""
        return next(spec for spec in self.specs if spec.name == stage)


def stages(config: Config) -> tuple[Stage, ...]:
    """The graph, in order: the same for every engine up to the data, then the engine's own."""
    body = (*_sources(config), *engines.of(config.engine.name).stages(config))
    if config.engine.sft == engines.SUPERVISED:
        body = _with_supervised(body, engines.of(engines.SUPERVISED).stages(config))
    if config.sft_data.path is not None:
        body = tuple(_with_examples(stage, Path(config.sft_data.path)) for stage in body)
    if not all(name in BUILTIN for name in config.reward.functions):
        body = tuple(_with_rewards(stage, config.reward) for stage in body)
    running = [stage.name for stage in body if stage.skipped is None]
    return (*body, Stage("report", ("report",), {name: name for name in running}, reads=READS))


def _with_supervised(body: Sequence[Stage], supervised: Sequence[Stage]) -> tuple[Stage, ...]:
    """An engine's graph with its own sft stage replaced, and what follows reading the result."""
    data = ("fetch", "fetch_dataset", "tokenize")  # what supervised training waits for, or runs beside
    after = (stage for stage in body if stage.name not in (*data, "sft"))
    return (*(stage for stage in body if stage.name in data), *supervised, *map(_from_sft, after))


def _from_sft(stage: Stage) -> Stage:
    inputs = {name: "sft" if source == "fetch" else source for name, source in stage.inputs.items()}
    return replace(stage, inputs=inputs)


def _with_examples(stage: Stage, examples: Path) -> Stage:
    """The tokenize stage that reads the user's own examples for supervised training."""
    if stage.name != "tokenize":
        return stage
    return replace(stage, sections=(*stage.sections, "sft_data"), external=(*stage.external, examples))


def _with_rewards(stage: Stage, reward: RewardConfig) -> Stage:
    """A stage that runs the user's own reward functions, whose source is part of what it reads."""
    if "reward" not in stage.sections or stage.skipped is not None or not stage.computes:
        return stage  # export only names them
    from stages.rewards import user_code  # here: who has none of their own need not load it

    return replace(stage, external=(*stage.external, *user_code.files_of(reward)))


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


def plan(
    config: Config,
    digest: Digest,
    names: Mapping[str, str] | None = None,
    target: Target | None = None,
    edition: Callable[[Key], int] = lambda key: 0,
    kept: Kept | None = None,
) -> Plan:
    """Fingerprint every stage of a run.

    Args:
        config: the checked configuration.
        digest: SHA-256 of a user's file.
        names: model and dataset -> the name that counts, where `config` has another one as a label.
        target: what is asked for; None: the whole graph.
        edition: how often an artifact was built anew, this time included.
        kept: of plans of other points; what follows from the same sections is not made again.

    Raises:
        ConfigError: a user's file cannot be read, or `target` names what this graph does not build.
    """
    graph, target, kept, names = stages(config), target or WHOLE, kept or Kept(), names or {}
    asked = target.asked(graph)
    values = {section: kept.of(plain, getattr(config, section)) for section in field_types(Config)}
    counting: dict[str, Any] = {}
    for section, value in values.items():
        counting |= kept.of(_counting, section, value, names.get(section))
    specs: dict[str, StageSpec] = {}
    skipped = {}
    for stage in graph:
        if stage.skipped is not None:
            skipped[stage.name] = stage.skipped
            continue
        part = {section: values[section] for section in stage.sections}
        external = {str(path): digest(path) for path in stage.external}
        inputs = {name: specs[source].key for name, source in stage.inputs.items()}
        version = VERSIONS[stage.name] if stage.program is None else stage.program.version
        digits = fingerprint(
            stage.name,
            version,
            without({name: counting[name] for name in stage.sections if name in counting}, stage.unread),
            {name: key.fingerprint for name, key in inputs.items()},
            _by_name(stage.external, external),
        )
        first = Key(stage.name, digits)
        number = edition(first)
        specs[stage.name] = StageSpec(
            anew(first, number),
            version,
            part,
            inputs,
            external,
            stage.workers,
            stage.computes,
            stage.bytes_written,
            stage.program,
            stage.reads,
            first if number else None,
            number,
        )
    return Plan(config, tuple(specs.values()), skipped, engines.notes(config), target, asked)


def anew(first: Key, number: int) -> Key:
    """The artifact of the same configuration and inputs, built anew for the `number`th time; 0: the first.

    It has a fingerprint, and with it a place, of its own: whoever reads or names an earlier one still may.
    """
    if number == 0:
        return first
    return Key(first.stage, hashlib.sha256(f"{first.fingerprint}+{number}".encode()).hexdigest())


def _counting(section: str, value: Any, name: str | None) -> dict[str, Any]:
    """What counts of a section, under its name; `name` counts where the section has another as a label."""
    return identity(Config, {section: value if name is None else {**value, "name": name}})


def _by_name(files: tuple[Path, ...], digests: Mapping[str, str]) -> dict[str, str]:
    """Digests under file names without directories, numbered so that equal names stay apart."""
    return {f"{index}:{path.name}": digests[str(path)] for index, path in enumerate(files)}
