"""Expansion of a sweep's command line by Hydra into the override lists of its points."""

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

from pipeline.config.compose import config_roots
from pipeline.config.remote import as_override
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.plan.target import Target
from pipeline.run import notify
from pipeline.sweep.build import SweepOptions
from pipeline.sweep.points import Point, accuracy
from pipeline.sweep.shared_keys import check_overrides
from stages.base.redact import redact


def expand(overrides: Sequence[str], options: SweepOptions) -> int:
    """Expand `overrides` with Hydra, run the points, and return the exit code.

    Raises:
        ConfigError: the search or the output is not possible, or the points have several remotes.
    """
    if options.as_json and not options.plan_only:
        rule = "is for --plan; results are in the store, in sweeps/ID/sweep.json"
        raise ConfigError([Problem("--json", None, rule, "add --plan")])
    check_overrides(overrides)
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from pipeline.config import refused

    config_dir, target = options.config_dir, options.target
    launcher = {"cards": options.cards, "plan_only": options.plan_only or None, "config_dir": config_dir}
    launcher["as_json"] = options.as_json or None
    arguments = [f"hydra.launcher.{key}={value}" for key, value in launcher.items() if value is not None]
    lists = {key: json.dumps(value) for key, value in asdict(target).items() if value}
    arguments += [f"hydra.launcher.{key}={value}" for key, value in lists.items()]
    arguments += ["hydra/launcher=luigi", "hydra/job_logging=none", "hydra/hydra_logging=none"]
    if not any(override.startswith("hydra/sweeper=") for override in overrides):
        arguments.append("hydra/sweeper=grid")
    if config_dir:
        arguments.append(f"hydra.searchpath=[file://{config_dir.resolve()},grpoflow://layouts]")
    arguments += [*_search(overrides, options.plan_only, target), *map(as_override, overrides)]
    if problems := list(refused.problems(overrides, config_roots(config_dir))):
        raise ConfigError(problems)  # Hydra composes the first point without these checks
    points: list[Point] = []
    main = hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(points.extend)
    typed, sys.argv = sys.argv, ["grpoflow sweep", "--multirun", *arguments]
    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise errors instead of printing them
    try:
        with tempfile.TemporaryDirectory() as scratch:  # for Hydra's multirun.yaml, which sweep.json replaces
            sys.argv.append(f"hydra.sweep.dir={scratch}")
            main()
    except (HydraException, OmegaConfBaseException) as error:
        print(redact(f"error: {error}"), file=sys.stderr)
        return Exit.INVALID
    except ValueError:
        if not points or any(point.state == "finished" for point in points):
            raise
        # Optuna raises this if no point of a search has a result; the table has shown the reasons.
    finally:
        sys.argv = typed
    states = Counter(point.state for point in points)
    if set(states) == {"invalid"}:
        return Exit.INVALID
    if options.plan_only:
        return Exit.DONE
    done = set(states) <= {"finished", "invalid"} and "finished" in states
    best = max((point.result for point in points if point.result), key=accuracy, default={})
    name = redact(shlex.join(overrides))
    notify.notify("sweep", name, "finished" if done else "failed", points=dict(states), result=best)
    return Exit.DONE if done else Exit.FAILED


def _search(overrides: Sequence[str], plan_only: bool, target: Target) -> list[str]:
    """Return the overrides that a search by Optuna needs in addition to the typed ones.

    The search maximises accuracy, and a failed point stops no other. A fixed seed proposes the same points
    again, so that an interrupted search continues with the artifacts in the store.

    Raises:
        ConfigError: Optuna's sweeper is not installed, or the options exclude a search: --plan, or a target
            without evaluate.
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
    logging.getLogger("hydra_plugins.hydra_optuna_sweeper").setLevel(
        logging.CRITICAL
    )  # the table shows failed points
    fixed = ["hydra.sweeper.direction=maximize", "hydra.sweeper.max_failure_rate=1"]
    return [*fixed, *(["hydra.sweeper.sampler.seed=0"] if seeded else [])]
