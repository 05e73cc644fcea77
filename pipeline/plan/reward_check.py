"""Probe of the reward functions in a plan, which warns before a run trains on rewards of 0.

Only fast checks are made: built-in text functions, on rows that are available.
"""

from __future__ import annotations

from pipeline import engines
from pipeline.config.sections import Config
from pipeline.plan.graph import Plan
from pipeline.store.store import Store
from stages.base.errors import Problem, StageError
from stages.rewards.config import BUILTIN

SLOW = "maths"  # takes seconds to import


def warnings(plan: Plan, store: Store) -> list[str]:
    """Return warnings about reward, prompt and dataset, or one that there is no dataset to probe yet."""
    config, reward = plan.config, plan.config.reward
    engine = engines.get(config.engine.name)
    if engine.reward_problems is not None:
        return [str(problem) for problem in engine.reward_problems(config.engine)]
    by_length = (reward.length.correct_by,) if reward.length and "cosine" in reward.functions else ()
    if any(name not in BUILTIN or name == SLOW for name in (*reward.functions, *by_length)):
        return []
    problems = _probe(plan, store)
    if problems is not None:
        return problems
    rule = f"was not probed against the prompts: the dataset from {config.dataset.source} is not fetched yet"
    remedy = "plan again once it is, or give files you have with dataset.source=local dataset.path"
    return [str(Problem("reward.functions", ",".join(reward.functions), rule, remedy))]


def _probe(plan: Plan, store: Store) -> list[str] | None:
    """Return the problems that the probe reports; None if no row is available."""
    from stages.rewards.probe import probe, sample_rows

    config: Config = plan.config
    source, key = config.dataset.source, plan.spec("fetch_dataset").key
    fetched = store.path(key) if source != "builtin" and store.problem(key) is None else None
    if fetched is None and source not in ("builtin", "local"):
        return None
    try:
        rows = sample_rows(config.dataset, config.tokenize, config.seed, fetched)
        leftover = engines.get(config.engine.name).leftover(vars(config.engine), config.model)
        result = probe(config.dataset, config.tokenize, config.reward, rows, leftover)
    except StageError as error:
        return [str(error)]
    return [str(problem) for problem in result.problems]
