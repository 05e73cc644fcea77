"""Checks of a plan against existing files and artifacts, so that a stage does not fail hours later."""

import importlib
from collections.abc import Iterator

from pipeline import engines
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, Problem
from pipeline.fingerprint import cached_digest
from pipeline.plan import checkouts
from pipeline.plan.graph import Plan
from pipeline.store.store import Store
from stages.catalog import STAGES
from stages.plan_checks import PlanCheck, Planned


def check(plan: Plan, store: Store, needs_weights: bool = True) -> None:
    """Check everything that a stage of the plan would refuse.

    A run repeats this after tokenize, because only then the number of rows is known.

    Raises:
        ConfigError: a stage would refuse its inputs; lists all problems.
    """
    complete = {spec.name: store.path(spec.key) for spec in plan.requested if store.problem(spec.key) is None}
    planned = Planned(
        plan.config,
        complete,
        {spec.name for spec in plan.requested if spec.name in plan.rebuilt or spec.name not in complete},
        cached_digest,
        needs_weights,
        plan.config.launcher.name == "local",
    )
    problems = [*_launcher(plan.config), *_stages(plan, planned), *_programs(plan, planned)]
    if problems:
        raise ConfigError(problems)


def _launcher(config: Config) -> Iterator[Problem]:
    """Check that the engine can use the launcher.

    This is not one of config/rules.py, because doctor checks a launcher's machines with any engine.
    """
    is_local = config.engine.name == "local" and config.engine.sft == "local"
    if is_local and config.launcher.name != "local":
        rule = "is for engines that are programs of their own: engine=local runs on this machine"
        yield Problem("launcher", config.launcher.name, rule, "choose launcher=local, or another engine")


def _stages(plan: Plan, planned: Planned) -> Iterator[Problem]:
    """Run the checks that the requested stages declare."""
    for spec in plan.requested:
        declared = STAGES.get(spec.name)
        if declared is not None and declared.plan_check:
            module, _, function = declared.plan_check.partition(":")
            check: PlanCheck = getattr(importlib.import_module(module), function)
            yield from check(planned)


def _programs(plan: Plan, planned: Planned) -> Iterator[Problem]:
    """Check the checkouts, interpreters and scripts of the programs that this plan runs."""
    if any(spec.stage.program is not None and spec.name in planned.pending for spec in plan.requested):
        for engine in engines.chosen(plan.config):
            if engine.programs:
                yield from checkouts.problems(engine, plan.config)
