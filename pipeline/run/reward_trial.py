"""Rewards that are not ours are tried on a handful of completions before anything expensive runs."""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

from launch.errors import ProcessFailed, ProcessTimedOut
from launch.process import child
from pipeline.config.disk_cache import recall, remember
from pipeline.errors import ConfigError, Problem
from pipeline.plan.graph import Plan
from pipeline.plan.process import write_spec
from pipeline.store.store import Store
from stages.base.context import WARNINGS
from stages.rewards.config import BUILTIN

KIND = "reward_trial"
LIMIT_S = 120.0
READERS = ("grpo", "evaluate")
SECTIONS = ("dataset", "tokenize", "reward", "seed")


def try_rewards(plan: Plan, store: Store) -> bool:
    """Whether rewards were tried, or need not be; False where the dataset is not at hand yet.

    What has been tried once, with the same code on the same data, is not tried again.

    Raises:
        ConfigError: a function can't be imported, or fails.
    """
    if all(name in BUILTIN for name in plan.config.reward.functions):
        return True
    running = [spec for spec in plan.asked if spec.name in READERS and spec.program is None]
    if all(store.problem(spec.key) is None for spec in running):
        return True
    dataset = plan.spec("fetch_dataset").key
    fetched = store.problem(dataset) is None
    if not fetched and plan.config.dataset.source not in ("builtin", "local"):
        return False
    values = {name: plan.config.plain()[name] for name in SECTIONS}
    code = [dict(spec.external) for spec in running]
    known = {"config": values, "dataset": dataset.fingerprint, "code": code}
    key = hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
    if recall(KIND, key) is None:
        for warning in _tried(values, {"fetch_dataset": store.path(dataset)} if fetched else {}):
            print(f"warning: {warning}", file=sys.stderr, flush=True)
        remember(KIND, key, True)
    return True


def _tried(values: dict[str, object], inputs: dict[str, Path]) -> list[str]:
    """What a process warns of that scores a few answers."""
    with tempfile.TemporaryDirectory(prefix="reward-trial-") as scratch:
        place = Path(scratch)
        program = [sys.executable, *write_spec(place, KIND, values, inputs)]
        try:
            child.run(program, job=scratch, log=place / "log", timeout_s=LIMIT_S)
        except ProcessFailed as error:
            raise ConfigError([_problem(error.tail)]) from error
        except ProcessTimedOut as error:
            rule = f"came to no end within {LIMIT_S:g} s on a handful of answers"
            raise ConfigError([Problem("reward.functions", None, rule, "mend it")]) from error
        warnings = place / WARNINGS
        return warnings.read_text(encoding="utf-8").splitlines() if warnings.exists() else []


def _problem(tail: list[str]) -> Problem:
    said = [line.removeprefix("error: ") for line in tail if line.startswith("error: ")]
    cause = said[-1] if said else " | ".join(tail[-6:])
    return Problem("reward", None, f"was tried before anything else runs: {cause}")
