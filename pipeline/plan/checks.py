"""Checks of a plan against existing files and artifacts, and warnings, so that no stage fails hours later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from launch.machine import environment
from launch.machine.environment import memory_bytes
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Problem, StageError
from pipeline.fingerprint import cached_digest
from pipeline.plan import checkouts, estimate, gates, job_resources, program_keys
from pipeline.plan.graph import Plan, StageSpec
from pipeline.store.store import Store
from stages import engines, plan_checks
from stages.engines.engine import Engine
from stages.fetch.config import source_warnings
from stages.models.config import ModelConfig
from stages.models.memory import RoleMemory
from stages.rewards.config import BUILTIN, RewardConfig, uses
from stages.tokenize import counts
from stages.tokenize.config import TokenizeConfig, escapes, unused_texts
from stages.weights.index import unused_index

if TYPE_CHECKING:
    from stages.rewards.probe import Leftover

LOCAL = ("local", "local")
"""Engine and supervised training of a run without outside programs."""


def check(plan: Plan, store: Store, needs_weights: bool = True) -> None:
    """Raise ConfigError with all that a stage of the plan would refuse, as far as it is known."""
    planned = _planned(plan, store, needs_weights)
    problems = []
    launcher, is_local = plan.config.launcher, (plan.config.engine.name, plan.config.engine.sft) == LOCAL
    if launcher.name != "local" and is_local and not launcher.stages:
        # not one of config/rules.py, because doctor checks a launcher's machines with any engine
        rule = "is for engines that are programs of their own: engine=local runs on this machine"
        remedy = "choose launcher=local, another engine, or launcher=slurm launcher.stages=all"
        problems.append(Problem("launcher", launcher.name, rule, remedy))
    problems += [*plan_checks.problems(planned), *gates.problems(plan), *job_resources.problems(plan)]
    if any(spec.stage.program is not None and spec.name in planned.pending for spec in plan.requested):
        for engine in engines.chosen(plan.config):
            if engine.programs:
                problems += checkouts.problems(engine, plan.config)
                problems += program_keys.problems(engine, plan.config)
    if "evaluate" in planned.pending:
        problems += program_keys.inference_problems(plan.config)
    if problems:
        raise ConfigError(problems)


def check_rows(plan: Plan, store: Store) -> None:
    """Raise ConfigError if tokenize made too few rows for a stage; only known once it is complete."""
    if problems := list(plan_checks.row_problems(_planned(plan, store))):
        raise ConfigError(problems)


def _planned(plan: Plan, store: Store, needs_weights: bool = True) -> plan_checks.Planned:
    complete = {spec.name: store.path(spec.key) for spec in plan.requested if store.problem(spec.key) is None}
    return plan_checks.Planned(
        plan.config,
        complete,
        {spec.name for spec in plan.requested if spec.name in plan.rebuilt or spec.name not in complete},
        cached_digest,
        needs_weights,
        plan.config.launcher.name == "local",
    )


def check_packages(to_build: Sequence[StageSpec]) -> None:
    """Raise ConfigError if a package of grpoflow's own that these stages need is missing, or unsuitable."""
    needed = {package for spec in to_build for package in spec.stage.imports}
    problems = []
    for check in environment.package_checks(needed) if to_build else ():
        if check.status == "problem":
            readers = [spec.name for spec in to_build if check.name in spec.stage.imports]
            needs = f", and needed by {', '.join(readers)}" if readers else ""
            problems.append(Problem(check.name, None, f"{check.found}{needs}", check.remedy))
    if problems:
        raise ConfigError(problems)


def check_machine(plan: Plan, to_build: Sequence[StageSpec]) -> None:
    """Raise ConfigError if this machine cannot build stages; `run --render` does without this."""
    launcher = plan.config.launcher
    check_packages([spec for spec in to_build if not launcher.runs_as_job(spec.name)])
    if any(launcher.runs_as_job(spec.name) for spec in to_build):
        from pipeline.plan import machines  # here: not needed on one machine

        if problems := list(machines.queue_problems(launcher)):
            raise ConfigError(problems)
    starts_engine = any(spec.stage.program is not None for spec in to_build)
    if starts_engine and (missing := list(needs(plan.config))):
        raise ConfigError(missing)


def needs(config: Config) -> Iterator[Problem]:
    """Yield a problem for each missing requirement that only a run has, not plan or run --render."""
    from pipeline.plan import machines  # here and below: not needed to plan a run on one machine

    for engine in engines.chosen(config):
        yield from engine.missing(config)
        if engine.programs:
            cards = max(stage.workers for stage in engine.stages(config))
            yield from machines.problems(config, engine, cards)


def notes(config: Config) -> list[str]:
    """Return the notes that are shown below a plan's stages."""
    lines = [note for engine in engines.chosen(config)[::-1] for note in engine.all_notes(config)]
    if config.launcher.name == "local":  # nothing to share between nodes
        return lines
    from pipeline.plan import machines

    return [*lines, *machines.notes(config)]


Probed = dict[str, list[str]]
"""What a reward was probed with -> the problems that were found."""


def warnings(
    plan: Plan, store: Store, roles: Sequence[RoleMemory] | None = None, probed: Probed | None = None
) -> list[str]:
    """Return warnings about sources, weight files, data, rewards and memory.

    Points of a sweep share `probed`, so that the same reward and dataset are probed once.
    """
    config = plan.config
    engine = engines.get(config.engine.name)
    job = engine.job(config)
    roles = engine.memory(job) if roles is None else roles
    problems = source_warnings(config.model, config.dataset)
    problems += [*unused_texts(config.tokenize, config.sft_data), *escapes(config.tokenize)]
    lines = [str(problem) for problem in problems]
    directory = config.model.path if config.model.source == "local" else None
    if directory is not None and (text := unused_index(Path(directory))):
        lines.append(f"model.path={text}")
    if any(spec.name == "tokenize" for spec in plan.specs):
        tokenized = counts.read_result(store.path(plan.spec("tokenize").key))
        lines += counts.warnings(tokenized.get("files", {}))
    lines += reward_warnings(plan, store, probed)
    lines += [note for chosen in engines.chosen(config) for note in program_keys.notes(chosen, config)]
    fetched = plan.spec("fetch").key
    artifact = store.path(fetched) if store.problem(fetched) is None else None
    lines += [*program_keys.inference_notes(config), *estimate.warnings(plan, store)]
    lines += tag_warnings(config.model, config.tokenize, config.reward, engine, artifact)
    return [*lines, *engine.shortage(job, roles, memory_bytes())]


def reward_warnings(plan: Plan, store: Store, probed: Probed | None = None) -> list[str]:
    """Return warnings about reward, prompt and dataset, or one that there is no dataset to probe yet.

    Only fast checks are made: built-in text functions (`maths` takes seconds to import, and
    others start programs or ask services), on available rows.
    """
    config, reward = plan.config, plan.config.reward
    engine = engines.get(config.engine.name)
    if engine.own_rewards:
        return [str(problem) for problem in engine.reward_problems(config.engine)]
    slow = ("maths", "judge", "code")
    if any(uses(reward, name) for name in slow) or any(name not in BUILTIN for name in reward.functions):
        return []
    problems = _probe(plan, store, {} if probed is None else probed)
    if problems is not None:
        return problems
    rule = f"was not probed against the prompts: the dataset from {config.dataset.source} is not fetched yet"
    remedy = "plan again once it is, or give files you have with dataset.source=local dataset.path"
    return [str(Problem("reward.functions", ",".join(reward.functions), rule, remedy))]


def tag_warnings(
    model: ModelConfig,
    tokenize: TokenizeConfig,
    reward: RewardConfig,
    engine: Engine[Any],
    fetched: Path | None = None,
) -> list[str]:
    """Return warnings about tags that reward functions read, if the model's tokenizer is here.

    `fetched`: the artifact of fetch, if it is complete.
    """
    path = model.tokenizer_path or (model.path if model.source == "local" else None)
    directory = fetched or (Path(path) if path else None)
    if directory is None or not directory.is_dir() or engine.own_rewards:
        return []
    from stages.tokenize.ending import tag_problems  # here: not needed without a model

    try:
        problems = tag_problems(directory, tokenize, reward, engine.name, engine.keeps_tags)
        return [str(problem) for problem in problems]
    except (StageError, ValueError):  # the checks of fetch and tokenize report it
        return []


def _probe(plan: Plan, store: Store, probed: Probed) -> list[str] | None:
    """Return the problems that the probe reports; None if no row is available."""
    config = plan.config
    source, key = config.dataset.source, plan.spec("fetch_dataset").key
    fetched = store.path(key) if source != "builtin" and store.problem(key) is None else None
    if fetched is None and source not in ("builtin", "local"):
        return None
    leftover = engines.get(config.engine.name).leftover(vars(config.engine), config.model)
    name = repr((config.dataset, config.tokenize, config.reward, fetched, leftover))
    if name not in probed:
        probed[name] = _probe_rows(config, fetched, leftover)
    return probed[name]


def _probe_rows(config: Config, fetched: Path | None, leftover: Leftover | None) -> list[str]:
    """Return the problems that the probe reports of the first rows.

    Generated rows are those of seed 0, as in `grpoflow probe`: whether a reward can be earned does not depend
    on the seed.
    """
    from stages.rewards.probe import probe, sample_rows

    try:
        rows = sample_rows(config.dataset, config.tokenize, 0, fetched)
        result = probe(config.dataset, config.tokenize, config.reward, rows, leftover)
    except StageError as error:
        return [str(error)]
    return [str(problem) for problem in result.problems]
