"""Plans: ordered stage specs with fingerprints, computed from a configuration by a pure function.

Each stage names the sections that it reads and the stages whose artifacts it needs. These determine its
fingerprint, and the fingerprint determines the path of its artifact.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from launch.machine.environment import install_command, is_present
from pipeline.config.sections import Config
from pipeline.fingerprint import fingerprint, without
from pipeline.plan.target import ALL_STAGES, Target
from pipeline.store.store import Key, Store
from stages import catalog, engines
from stages.base.graph import Program, Stage
from stages.base.identity import identity
from stages.fetch.config import UNREAD_OF_FILES
from stages.fetch.user_files import external_files
from stages.grpo.config import AGENT_KEYS, VLLM_KEYS, RolloutConfig
from stages.grpo.rules import agent_code
from stages.report.artifacts import READS
from stages.rewards.config import RewardConfig, reads_columns, uses
from stages.tokenize.config import BLOCK_KEYS, BLOCKS

Digest = Callable[[Path], str]
VLLM = Program("vllm_evaluate", "stages.inference.evaluate", version=1, section="evaluate")
"""Program of stage evaluate with evaluate.program=vllm."""
UNREAD_OF_ROWS = frozenset(("tokenize", key) for key in BLOCK_KEYS)


@dataclass(frozen=True)
class StageSpec:
    """One stage of one run, with all that is needed to find its artifact or to run it."""

    stage: Stage
    """Declaration of the stage, with what is specific to this run."""
    key: Key
    version: int
    config: Mapping[str, Any]
    """The part of the configuration that the stage reads: section -> values."""
    inputs: Mapping[str, Key]
    external: Mapping[str, str]
    """User's file (as configured) -> SHA-256 of its content."""

    @property
    def name(self) -> str:
        """Name of the stage."""
        return self.key.stage

    @property
    def required(self) -> tuple[str, ...]:
        """Patterns of paths that the stage's artifact must contain."""
        return tuple(self.stage.required_files(self.config))

    @property
    def code(self) -> dict[str, tuple[str, str]]:
        """User's module that the stage imports -> its file and the file's SHA-256."""
        modules = {} if self.stage.user_code is None else self.stage.user_code.modules
        return {name: (str(file), self.external[str(file)]) for name, file in modules.items()}


@dataclass(frozen=True)
class Plan:
    """All stages of one run, in an order in which they can run."""

    config: Config
    specs: tuple[StageSpec, ...]
    skipped: Mapping[str, str]
    """Stage -> reason why it is left out."""
    target: Target = ALL_STAGES
    names: frozenset[str] | None = None
    """Names of the requested stages; None for all."""

    @property
    def rebuilt(self) -> frozenset[str]:
        """Requested stages that run although the store has them: those of --force and all downstream."""
        return downstream(self.target.force, self.graph) & {spec.name for spec in self.requested}

    @property
    def graph(self) -> tuple[Stage, ...]:
        """Declarations of the stages, in order."""
        return tuple(spec.stage for spec in self.specs)

    @property
    def requested(self) -> tuple[StageSpec, ...]:
        """Specs of the requested stages, in order."""
        return tuple(spec for spec in self.specs if self.names is None or spec.name in self.names)

    @property
    def cards(self) -> int:
        """Number of cards of the layout, or of the stage that occupies the most."""
        return max(self.config.cards, *(spec.stage.workers for spec in self.specs if spec.stage.computes), 1)

    def spec(self, stage: str) -> StageSpec:
        """Return the spec of one stage."""
        return next(spec for spec in self.specs if spec.name == stage)

    def missing(self, store: Store) -> list[StageSpec]:
        """Return the requested stages that are rebuilt, or whose artifacts are not complete in a store."""
        rebuilt = self.rebuilt
        return [
            spec for spec in self.requested if spec.name in rebuilt or store.problem(spec.key) is not None
        ]


def stages(config: Config) -> tuple[Stage, ...]:
    """Return the stages in order: the data stages, which all engines share, then those of the engine.

    An outside engine trains without the packages that evaluate imports. Where they are missing, evaluate is
    left out, so that a run need not wait for them; once they are installed, the same run evaluates.
    """
    engine = engines.get(config.engine.name)
    body = (*_sources(config), *engine.stages(config))
    if config.engine.sft == engines.SUPERVISED:
        body = _with_supervised(body, engines.get(engines.SUPERVISED).stages(config))
    if config.sft_data.path is not None:
        examples = Path(config.sft_data.path)  # the user's, for supervised training
        body = tuple(
            replace(stage, sections=(*stage.sections, "sft_data"), external=(*stage.external, examples))
            if stage.name == "tokenize"
            else stage
            for stage in body
        )
    body = tuple(_without_unused_rewards(stage, config.reward) for stage in body)
    body = tuple(_without_unused_agent(stage, config.rollout) for stage in body)
    if uses(config.reward, "maths") or reads_columns(config.reward) or config.rollout.agent is not None:
        body = tuple(_with_user_code(stage, config) for stage in body)
    body = tuple(_with_inference(stage, config) for stage in body)
    if engine.programs:
        body = _without_missing_packages(body)
    if config.tokenize.kind not in BLOCKS:
        body = tuple(
            replace(stage, unread=stage.unread | UNREAD_OF_ROWS) if "tokenize" in stage.sections else stage
            for stage in body
        )
    running = [stage.name for stage in body if stage.skipped is None]
    sections = (*catalog.REPORT.sections, *(["gates"] if config.gates.limits else []))
    report = replace(catalog.REPORT, sections=sections, inputs={name: name for name in running}, reads=READS)
    return (*body, report)


def _without_missing_packages(body: Sequence[Stage]) -> tuple[Stage, ...]:
    """Leave evaluate out, also as an input, if a package that it imports is not installed."""
    missing = [
        package
        for stage in body
        if stage.name == "evaluate" and stage.skipped is None
        for package in stage.imports
        if not is_present(package)
    ]
    if not missing:
        return tuple(body)
    return _without("evaluate", f"{missing[0]} is not installed here: {install_command(missing[0])}", body)


def _without(name: str, reason: str, graph: Iterable[Stage]) -> tuple[Stage, ...]:
    """Leave a stage out, also as an input of others."""
    return tuple(
        replace(stage, skipped=reason)
        if stage.name == name
        else replace(stage, inputs={key: source for key, source in stage.inputs.items() if source != name})
        for stage in graph
    )


def _with_supervised(body: Sequence[Stage], supervised: Sequence[Stage]) -> tuple[Stage, ...]:
    """Replace an engine's sft stage; later stages read the result instead of the fetched model."""
    data = ("fetch", "fetch_dataset", "tokenize")  # stages before supervised training, or parallel to it
    before = [stage for stage in body if stage.name in data]
    after = [
        replace(stage, inputs={key: "sft" if name == "fetch" else name for key, name in stage.inputs.items()})
        for stage in body
        if stage.name not in (*data, "sft")
    ]
    return (*before, *supervised, *after)


def _without_unused_rewards(stage: Stage, reward: RewardConfig) -> Stage:
    """Leave the settings of judge and code out of the fingerprint of a run whose reward does not use them."""
    if "reward" not in stage.sections:
        return stage
    unused = {("reward", name) for name in ("judge", "code") if not uses(reward, name)}
    return replace(stage, unread=stage.unread | unused)


def _without_unused_agent(stage: Stage, rollout: RolloutConfig) -> Stage:
    """Leave settings of several turns out of the fingerprint of a stage that has none; evaluate never has."""
    if "rollout" not in stage.sections or (rollout.agent is not None and stage.name != "evaluate"):
        return stage
    return replace(stage, unread=stage.unread | {("rollout", name) for name in AGENT_KEYS})


def _with_user_code(stage: Stage, config: Config) -> Stage:
    """Add the user's code, and the packages of reward functions, to a stage that runs them.

    The code are reward functions, which may also ask for columns of the dataset, and in grpo the functions
    of rollout.tools and an agent loop.
    """
    if "reward" not in stage.sections or stage.skipped is not None or not stage.computes:
        return stage  # export only writes their names
    from stages.rewards.user_code import user_code  # here: needed only for code outside this project

    reward = config.reward
    if reads_columns(reward):
        stage = replace(
            stage,
            sections=tuple(dict.fromkeys((*stage.sections, "dataset", "tokenize"))),
            inputs={**stage.inputs, "fetch_dataset": "fetch_dataset"},
        )
    code = user_code(reward, agent_code(config.rollout) if stage.name == "grpo" else {})
    if code is None:
        return stage
    if stage.program is not None:  # the packages are those of the program's interpreter
        code = replace(code, packages={})
    return replace(stage, external=(*stage.external, *code.external), user_code=code)


def _with_inference(stage: Stage, config: Config) -> Stage:
    """Let vLLM do the work of evaluate, if it is chosen; its settings are fingerprinted only there."""
    if "evaluate" not in stage.sections:
        return stage
    if stage.name != catalog.EVALUATE.name or config.evaluate.program == "local":
        return replace(stage, unread=stage.unread | {("evaluate", key) for key in VLLM_KEYS})
    # vLLM runs in the engine's environment, whose settings change no answer
    unread = {("engine", name) for name in vars(config.engine)}
    merged = 4 * config.model.num_parameters if "strategy" in stage.inputs else 0
    return replace(
        stage,
        sections=tuple(dict.fromkeys((*stage.sections, "tokenize", "engine"))),
        unread=stage.unread | unread,
        workers=config.evaluate.layout.cards,
        bytes_written=2 * merged,
        program=VLLM,
    )


def _sources(config: Config) -> tuple[Stage, ...]:
    """Return the stages fetch and fetch_dataset, each with only the sections that its source reads."""
    model, dataset = config.model, config.dataset
    builtin = model.source == "builtin"
    trained = builtin and model.tokenizer_path is None  # a tokenizer is trained on the dataset's text
    downloaded = dataset.source in ("url", "modelscope")
    fetch = replace(
        catalog.FETCH,
        sections=("model", *(["dataset"] if trained else []), "seed" if builtin else "fetch"),
        inputs={"fetch_dataset": "fetch_dataset"} if trained and downloaded else {},
        external=external_files(model) + (external_files(dataset) if trained else ()),
        bytes_written=None if model.source == "local" else model.weight_bytes,
        # keys that only later stages read must not cause another download of hours
        unread=frozenset() if builtin else frozenset(("model", key) for key in UNREAD_OF_FILES),
    )
    fetch_dataset = replace(
        catalog.FETCH_DATASET,
        sections=("dataset", "seed" if dataset.source == "builtin" else "fetch"),
        external=external_files(dataset),
    )
    return (fetch_dataset, fetch) if fetch.inputs else (fetch, fetch_dataset)


def plan(
    config: Config, digest: Digest, target: Target | None = None, left_out: tuple[str, str] | None = None
) -> Plan:
    """Fingerprint every stage of a run; `digest` returns the SHA-256 of a user's file.

    `left_out`: a stage to leave out, and the reason.

    Raises:
        ConfigError: a user's file cannot be read, or `target` names a stage that this graph does not build.
    """
    graph, target = stages(config), target or ALL_STAGES
    if left_out is not None:
        graph = _without(*left_out, graph)
    requested = target.requested(graph)
    values = config.plain()
    identities = identity(Config, values)
    specs: dict[str, StageSpec] = {}
    skipped = {}
    for stage in graph:
        if stage.skipped is not None:
            skipped[stage.name] = stage.skipped
            continue
        part = {section: values[section] for section in stage.sections}
        external = {str(path): digest(path) for path in stage.external}
        sections = {name: identities[name] for name in stage.sections if name in identities}
        further: dict[str, Any] = {}
        if stage.user_code is not None and stage.user_code.packages:
            further["packages"] = dict(stage.user_code.packages)
        inputs = {name: specs[source].key for name, source in stage.inputs.items()}
        version = stage.version if stage.program is None else stage.program.version
        digits = fingerprint(
            stage.name,
            version,
            without(sections, stage.unread) | further,
            {name: key.fingerprint for name, key in inputs.items()},
            # without directories; the numbers distinguish equal names
            {f"{index}:{path.name}": external[str(path)] for index, path in enumerate(stage.external)},
        )
        specs[stage.name] = StageSpec(stage, Key(stage.name, digits), version, part, inputs, external)
    return Plan(config, tuple(specs.values()), skipped, target, requested)


def downstream(names: Iterable[str], graph: Sequence[Stage]) -> frozenset[str]:
    """Return `names` and all stages that read their artifacts, directly or not."""
    reached = set(names)
    for stage in graph:
        if not reached.isdisjoint(stage.inputs.values()):
            reached.add(stage.name)
    return frozenset(reached)
