"""A sweep's command line, which Hydra expands into the override lists of its points."""

import importlib.util
import json
import logging
import os
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from pipeline.config.remote import as_override
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.plan.target import Target
from pipeline.run import notify
from pipeline.sweep.build import Asked
from pipeline.sweep.points import Point, accuracy


def expand(overrides: Sequence[str], asked: Asked) -> int:
    """Let Hydra expand `overrides` and run the points; returns the exit code.

    Raises:
        ConfigError: a search is asked for that cannot be made here, or JSON of what is no plan.
    """
    if asked.as_json and not asked.plan_only:
        rule = "is for --plan; what ran stands in the store, in sweeps/ID/sweep.json"
        raise ConfigError([Problem("--json", None, rule, "add --plan")])
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    config_dir, target = asked.config_dir, asked.target
    launcher = {"cards": asked.cards, "plan_only": asked.plan_only or None, "config_dir": config_dir}
    launcher["as_json"] = asked.as_json or None
    arguments = [f"hydra.launcher.{key}={value}" for key, value in launcher.items() if value is not None]
    lists = asdict(target) | {"brought": [str(path.absolute()) for path in asked.brought]}
    arguments += [f"hydra.launcher.{key}={json.dumps(value)}" for key, value in lists.items() if value]
    arguments += ["hydra/launcher=luigi", "hydra/job_logging=none", "hydra/hydra_logging=none"]
    if not any(override.startswith("hydra/sweeper=") for override in overrides):
        arguments.append("hydra/sweeper=grid")
    if config_dir:
        arguments.append(f"hydra.searchpath=[file://{config_dir.resolve()},grpoflow://layouts]")
    arguments += [*_search(overrides, asked.plan_only, target), *map(as_override, overrides)]
    points: list[Point] = []
    main = hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(points.extend)
    typed, sys.argv = sys.argv, ["grpoflow sweep", "--multirun", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise what is wrong instead of printing where
    try:
        with tempfile.TemporaryDirectory() as scratch:  # for Hydra's multirun.yaml; ours is sweep.json
            sys.argv.append(f"hydra.sweep.dir={scratch}")
            main()
    except (HydraException, OmegaConfBaseException) as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.INVALID
    except ValueError:
        if not points or any(point.state == "finished" for point in points):
            raise
        # A search without one result has no best point, which Optuna raises; why, the table has told.
    finally:
        sys.argv = typed
    states = Counter(point.state for point in points)
    if set(states) == {"invalid"}:
        return Exit.INVALID
    if asked.plan_only:
        return Exit.DONE
    done = set(states) <= {"finished", "invalid"} and "finished" in states
    best = max((point.result for point in points if point.result), key=accuracy, default={})
    name = shlex.join(overrides)
    notify.tell("sweep", name, "finished" if done else "failed", points=dict(states), result=best)
    return Exit.DONE if done else Exit.FAILED


def _search(overrides: Sequence[str], plan_only: bool, target: Target) -> list[str]:
    """What a search by Optuna needs besides what was typed.

    More accuracy is better, a failed point stops no other, and a fixed seed proposes the same points again,
    so that an interrupted search goes on: what it has found already is in the store.

    Raises:
        ConfigError: Optuna's sweeper is not installed, or points are not known before they ran, or have no
            accuracy.
    """
    if "hydra/sweeper=optuna" not in overrides:
        return []
    key = ("hydra/sweeper", "optuna")
    if importlib.util.find_spec("hydra_plugins.hydra_optuna_sweeper") is None:
        rule = "needs Optuna and Hydra's sweeper for it"
        raise ConfigError([Problem(*key, rule, "pip install 'grpoflow[search]'")])
    if plan_only:
        rule = "what it will try depends on results, so that --plan cannot show it"
        raise ConfigError([Problem(*key, rule, "plan single points")])
    if target.is_part and "evaluate" not in (*target.only, target.until):
        rule = f"is led by held-out accuracy, which {target} does not measure"
        raise ConfigError([Problem(*key, rule, "ask for evaluate, or for the whole graph")])
    seeded = not any(override.startswith("hydra/sweeper/sampler=") for override in overrides)
    logging.getLogger("hydra_plugins.hydra_optuna_sweeper").setLevel(logging.CRITICAL)  # the table tells it
    fixed = ["hydra.sweeper.direction=maximize", "hydra.sweeper.max_failure_rate=1"]
    return [*fixed, *(["hydra.sweeper.sampler.seed=0"] if seeded else [])]
