"""Expansion of a sweep's command line by Hydra into the override lists of its points."""

import importlib.util
import logging
import os
import shlex
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence

from pipeline.config.compose import label_problems, search_path
from pipeline.config.remote import as_override
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.plan.target import Target
from pipeline.run import notify
from pipeline.sweep.build import Sweep, SweepOptions
from pipeline.sweep.points import accuracy
from stages.base.redact import redact


def expand(overrides: Sequence[str], options: SweepOptions) -> int:
    """Expand `overrides` with Hydra, run the points, and return the exit code.

    Raises:
        ConfigError: the search or the output is not possible, or points differ in a key that they must share.
    """
    if options.as_json and not options.plan_only:
        rule = "is for --plan; results are in the store, in sweeps/ID/sweep.json"
        raise ConfigError([Problem("--json", None, rule, "add --plan")])
    arguments = [*_search(overrides, options.plan_only, options.target), *map(as_override, overrides)]
    import hydra
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    if problems := list(label_problems(overrides)):
        raise ConfigError(problems)  # Hydra composes the first point without these checks
    if not any(override.startswith("hydra/sweeper=") for override in overrides):
        arguments.append("hydra/sweeper=grid")
    arguments += search_path(options.config_dir)
    arguments += ["hydra/launcher=luigi", "hydra/job_logging=none", "hydra/hydra_logging=none"]
    sweep = Sweep(overrides, options)
    main = hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(sweep.run)
    typed = sys.argv
    os.environ["HYDRA_FULL_ERROR"] = "1"  # raise errors instead of printing them
    try:
        with tempfile.TemporaryDirectory() as scratch:  # for Hydra's multirun.yaml, which sweep.json replaces
            sys.argv = ["grpoflow sweep", "--multirun", *arguments, f"hydra.sweep.dir={scratch}"]
            main()
    except (HydraException, OmegaConfBaseException) as error:
        print(redact(f"error: {error}"), file=sys.stderr)
        return Exit.INVALID
    except ValueError as error:
        if not sweep.points:  # Hydra refuses an override
            print(redact(f"error: {error}"), file=sys.stderr)
            return Exit.INVALID
        if any(point.state == "finished" for point in sweep.points):
            raise  # otherwise from Optuna: there is no best trial
    finally:
        sys.argv = typed
    return _exit_code(sweep, overrides, options)


def _exit_code(sweep: Sweep, overrides: Sequence[str], options: SweepOptions) -> int:
    """Return the exit code of a sweep that ended, and notify the webhook."""
    states = Counter(point.state for point in sweep.points)
    if set(states) == {"invalid"}:
        return Exit.INVALID
    if options.plan_only:
        return Exit.DONE
    done = set(states) <= {"finished", "invalid"} and "finished" in states
    best = max((point.result for point in sweep.points if point.result), key=accuracy, default={})
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
