"""Checks of a plan against existing files and artifacts, so that a stage does not fail hours later."""

import importlib

from pipeline import engines
from pipeline.errors import ConfigError, Problem
from pipeline.fingerprint import cached_digest
from pipeline.plan import checkouts
from pipeline.plan.graph import Plan
from pipeline.store.store import Store
from stages.catalog import STAGES
from stages.plan_checks import Planned

LOCAL = ("local", "local")
"""Engine and supervised training of a run without outside programs."""


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
    problems = []
    if plan.config.launcher.name != "local" and (plan.config.engine.name, plan.config.engine.sft) == LOCAL:
        # not one of config/rules.py, because doctor checks a launcher's machines with any engine
        rule = "is for engines that are programs of their own: engine=local runs on this machine"
        remedy = "choose launcher=local, or another engine"
        problems.append(Problem("launcher", plan.config.launcher.name, rule, remedy))
    for spec in plan.requested:
        declared = STAGES.get(spec.name)
        if declared is not None and declared.plan_check:
            module, _, function = declared.plan_check.partition(":")
            problems += getattr(importlib.import_module(module), function)(planned)
    if any(spec.stage.program is not None and spec.name in planned.pending for spec in plan.requested):
        for engine in engines.chosen(plan.config):
            if engine.programs:
                problems += checkouts.problems(engine, plan.config)
    if problems:
        raise ConfigError(problems)
