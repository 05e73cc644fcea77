"""Trial run of the user's reward functions on a few completions, before any expensive stage."""

import hashlib
import json
import os
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from launch.errors import LaunchError, ProcessFailed
from launch.process import child
from pipeline.cache import recall, remember
from pipeline.errors import ConfigError, Problem
from pipeline.plan.graph import Plan, StageSpec
from pipeline.plan.process import write_spec
from pipeline.store.store import Store
from pipeline.terminal import say
from stages.base.context import WARNINGS
from stages.rewards.config import BUILTIN, RewardConfig
from stages.rewards.process import SINGLE_CALLS

KIND = "reward_trial"
LIMIT_S = 120.0
"""Time for starting the processes and importing the functions."""
CALLS = 2 + SINGLE_CALLS
"""Limit of the time in the functions, in multiples of reward.timeout_s for each: a call with all completions,
calls with one each, and another with those that did not fail."""
TRIED = ("judge", "code")
"""Built-in functions that start programs or ask a service."""
COMPLETIONS = 28
"""Completions of the trial: seven forms of answer to four rows (stages/rewards/trial.py)."""
READERS = ("grpo", "evaluate")
SECTIONS = ("dataset", "tokenize", "reward", "seed")


def scores_here(spec: StageSpec) -> bool:
    """Return True if a stage computes rewards in a process of grpoflow, not in that of its program."""
    return spec.stage.program is None or spec.stage.program.section == "evaluate"


def try_rewards(plan: Plan, store: Store) -> None:
    """Run reward functions that may fail on a few completions, unless they passed on the same data.

    These are the user's, judge, whose service must answer, and code, whose sandbox must start.

    Do nothing if the dataset is not available yet; raise ConfigError if a function fails.
    """
    if all(name in BUILTIN and name not in TRIED for name in plan.config.reward.functions):
        return
    running = [spec for spec in plan.requested if spec.name in READERS and scores_here(spec)]
    if all(spec.name not in plan.rebuilt and store.problem(spec.key) is None for spec in running):
        return
    dataset = plan.spec("fetch_dataset").key
    fetched = store.problem(dataset) is None
    if not fetched and plan.config.dataset.source not in ("builtin", "local"):
        return
    values = {name: plan.config.plain()[name] for name in SECTIONS}
    code = [dict(spec.external) for spec in running]
    changed_ns = os.stat(sysconfig.get_path("purelib")).st_mtime_ns  # by every installation of a package
    python = [sys.executable, sys.version, changed_ns]
    identity = {"config": values, "dataset": dataset.fingerprint, "code": code, "python": python}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()
    warnings = recall(KIND, key)
    if not isinstance(warnings, list):
        inputs = {"fetch_dataset": store.path(dataset)} if fetched else {}
        modules = {name: file for spec in running for name, file in spec.code.items()}
        warnings = _score_samples(plan.config.reward, values, inputs, modules)
        remember(KIND, key, warnings)
    for warning in warnings:
        say(f"warning: {warning}", stderr=True)


def _score_samples(
    reward: RewardConfig,
    values: dict[str, object],
    inputs: dict[str, Path],
    code: Mapping[str, tuple[str, str]],
) -> list[str]:
    """Score a few completions in a child process; return its warnings."""
    with tempfile.TemporaryDirectory(prefix="reward-trial-") as scratch:
        directory = Path(scratch)
        arguments = write_spec(directory, "stages.rewards.trial:run", values, inputs, code=code)
        program = [sys.executable, *arguments]
        limit_s = LIMIT_S + CALLS * reward.timeout_s * len(reward.functions) + _service_limit_s(reward)
        try:
            child.run(program, job=scratch, log=directory / "log", timeout_s=limit_s)
        except ProcessFailed as error:
            errors = [line.removeprefix("error: ") for line in error.tail if line.startswith("error: ")]
            cause = errors[-1] if errors else " | ".join(error.tail[-6:])
            rule = f"was tried before anything else runs: {cause}"
            raise ConfigError([Problem("reward", None, rule)]) from error
        except LaunchError as error:
            rule = f"did not finish within {limit_s:g} s on a few completions"
            remedy = "import less when the module is loaded, or lower reward.timeout_s"
            raise ConfigError([Problem("reward.functions", None, rule, remedy)]) from error
        warnings = directory / WARNINGS
        return warnings.read_text(encoding="utf-8").splitlines() if warnings.exists() else []


def _service_limit_s(reward: RewardConfig) -> float:
    """Return the longest time that judge and code take for the completions of the trial."""
    seconds = 0.0
    if reward.judge is not None:
        rounds = -(-COMPLETIONS // reward.judge.concurrency)
        seconds += rounds * (reward.judge.retries + 1) * reward.judge.timeout_s
    if reward.code is not None:
        seconds += -(-COMPLETIONS // reward.code.workers) * 3 * reward.code.timeout_s
    return seconds
