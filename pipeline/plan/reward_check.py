"""Probe of the reward functions in a plan, which warns before a run trains on rewards of 0.

Only fast checks are made: built-in text functions, on rows that are available. The result is cached, so that
a repeated plan does not import the modules for it.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import stages
from pipeline import engines
from pipeline.cache import recall, remember
from pipeline.config.sections import Config
from pipeline.plan.graph import Plan
from pipeline.store.store import Store
from stages.base.errors import Problem, StageError
from stages.models.config import ModelConfig
from stages.rewards.config import BUILTIN, RewardConfig
from stages.sections import EngineConfig

if TYPE_CHECKING:
    from stages.rewards.probe import Leftover

KIND = "probe"
SLOW = "maths"  # takes seconds to import


def warnings(plan: Plan, store: Store) -> list[str]:
    """Return warnings about reward, prompt and dataset, or one that there is no dataset to probe yet."""
    engine = engines.of(plan.config.engine.name)
    if engine.reward_problems is not None:
        return [str(problem) for problem in engine.reward_problems(plan.config.engine)]
    if not _is_quick(plan.config.reward):
        return []
    config = plan.config
    # The built-in dataset is similar for all seeds, so a sweep over seeds probes it once.
    content = None if config.dataset.source == "builtin" else plan.spec("fetch_dataset").key.fingerprint
    key = _cache_key(config, content)
    known = recall(KIND, key)
    if isinstance(known, list):
        return known
    problems = _probe(plan, store)
    if problems is None:
        return [_unprobed(config)]
    remember(KIND, key, problems)
    return problems


def _unprobed(config: Config) -> str:
    rule = f"was not probed against the prompts: the dataset from {config.dataset.source} is not fetched yet"
    remedy = "plan again once it is, or give files you have with dataset.source=local dataset.path"
    return str(Problem("reward.functions", ",".join(config.reward.functions), rule, remedy))


def _is_quick(reward: RewardConfig) -> bool:
    by_length = reward.length.correct_by if reward.length and "cosine" in reward.functions else None
    return all(name in BUILTIN and name != SLOW for name in (*reward.functions, by_length or "cosine"))


def _leftover(engine: EngineConfig, model: ModelConfig) -> Leftover | None:
    return engines.of(engine.name).leftover(vars(engine), model)


def _cache_key(config: Config, dataset: str | None) -> str:
    """Return the digest of everything that the result depends on.

    Args:
        config: the run's configuration.
        dataset: fingerprint of the fetched dataset; None for the built-in one.
    """
    content = {
        "dataset": asdict(config.dataset),
        "tokenize": asdict(config.tokenize),
        "reward": asdict(config.reward),
        "leftover": repr(_leftover(config.engine, config.model)),
        "code": _code(),
        "fetched": dataset,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@functools.cache
def _code() -> list[str]:
    root = Path(stages.__file__).parent
    files = [*sorted((root / "rewards").glob("*.py")), root / "tokenize" / "text.py"]
    return [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]


def _probe(plan: Plan, store: Store) -> list[str] | None:
    """Return the problems that the probe reports; None if no row is available."""
    from stages.fetch.records import split_sources
    from stages.rewards.probe import first_rows, probe, sample_rows

    config: Config = plan.config
    fetched = plan.spec("fetch_dataset").key
    try:
        if config.dataset.source == "builtin":
            rows = sample_rows(config.dataset, config.tokenize, seed=0)
        elif store.problem(fetched) is None:
            directory = store.path(fetched)
            files = split_sources(directory, "train")
            if not files:
                return [f"{directory}: holds no file of the training split"]
            rows = first_rows(files[0], config.dataset, config.tokenize)
        elif config.dataset.source == "local":
            rows = sample_rows(config.dataset, config.tokenize, config.seed)
        else:
            return None
        result = probe(
            config.dataset, config.tokenize, config.reward, rows, _leftover(config.engine, config.model)
        )
    except StageError as error:
        return [str(error)]
    return [str(problem) for problem in result.problems]
