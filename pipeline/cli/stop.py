"""`grpoflow stop`: end a run that another process executes."""

from argparse import Namespace

from pipeline.cli.command import Commands, bounded, store_of
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.run import detached
from pipeline.store import history
from pipeline.terminal import say


def register(commands: Commands) -> None:
    """Add `stop`."""
    parser = commands.add(
        "stop",
        stop,
        "end a run, detached or in another terminal; finished stages and checkpoints are kept",
        "last",
        "20261121-0801 --grace 0",
    )
    parser.add_argument("run", metavar="RUN", help="id, beginning of an id, name, last, or id of a sweep")
    parser.add_argument(
        "--grace",
        type=bounded(0),
        default=60,
        metavar="SECONDS",
        help="time to end by itself, after which it is killed (default 60)",
    )


def stop(options: Namespace) -> int:
    """End a run's process; the same command resumes it."""
    root = store_of(options).root
    runs = detached.find(root, options.run)
    run = runs[0]
    if run.state != "running":
        say(f"run {run.id} does not run: {run.outcome}")
        return Exit.DONE
    if run.sweep and options.run != run.sweep:
        rule = f"is a point of sweep {run.sweep}, whose points are one process"
        raise ConfigError([Problem("RUN", options.run, rule, f"grpoflow stop {run.sweep} ends all of them")])
    say(f"stopping run {run.id}" if not run.sweep else f"stopping sweep {run.sweep}", stderr=True)
    was_killed = detached.stop(root, run, options.grace)
    message = f"killed by grpoflow stop after {options.grace} s" if was_killed else "grpoflow stop"
    known = history.runs(root)
    for silent in (run.id for run in runs if known[run.id].state == "died"):  # killed, or building no stage
        history.record(root, silent, "interrupted", stage="", message=message)
    for ended in runs:
        say(f"run {ended.id}: {history.runs(root)[ended.id].state}; its command resumes it")
    return Exit.DONE
