"""`grpoflow run`: same code path as `luigi --module pipeline RunGRPO`."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from typing import TYPE_CHECKING

from pipeline.cli.command import Bounded, Commands, add_configuration, add_target, target_of
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.run.run import begin, prepare_plan

if TYPE_CHECKING:
    from pipeline.plan.target import Target
    from pipeline.run.run import Run


def register(commands: Commands) -> None:
    """Add `run`."""
    parser = commands.add(
        "run",
        run,
        "run the stages that are not cached, from fetch to report",
        "seed=1 train.beta=0.02",
        "--until split model=qwen2_5_7b   # weights and data now, cards later",
        "--force grpo",
    )
    add_configuration(parser)
    add_target(parser)
    parser.add_argument(
        "--workers",
        type=Bounded(int, 1, 256),
        default=1,
        metavar="N",
        help="stages that may run at the same time",
    )
    parser.add_argument(
        "--render",
        "--dry-run",
        action="store_true",
        help="only write an external engine's configuration files and a start script per node",
    )


def run(options: Namespace) -> int:
    """Build the missing stages with Luigi's command line, same as `luigi --module pipeline`."""
    if options.render:
        return render(options)
    target = target_of(options)
    try:
        begun = begin(options.overrides, options.config_dir, target)
        if begun.is_done():
            begun.report()  # Luigi would do nothing else, and importing it would double the time
        else:
            _build(options, target, begun)
    except SystemExit as exit:
        code = int(exit.code or 0)
        if code != Exit.DONE:
            _report_unbuilt_stages()
        return code
    return Exit.DONE


def _build(options: Namespace, target: Target, begun: Run) -> None:
    """Let Luigi build the missing stages of a run."""
    from luigi.cmdline import luigi_run

    from pipeline import tasks

    config_dir = None if options.config_dir is None else str(options.config_dir)
    tasks.adopt(json.dumps(options.overrides), config_dir, begun)
    # not `pipeline`, which is imported already, without its tasks
    arguments = ["--module", "pipeline.tasks", "RunGRPO", f"--overrides={json.dumps(options.overrides)}"]
    arguments += [f"--{option}={names}" for option, names in target.options().items() if names]
    arguments.append(f"--workers={options.workers}")
    if config_dir is not None:
        arguments.append(f"--config-dir={config_dir}")
    luigi_run(arguments)


def _report_unbuilt_stages() -> None:
    """Record the end of runs whose stages Luigi's scheduler left unbuilt although none failed."""
    if "luigi" not in sys.modules:  # nothing was to be built
        return
    from pipeline.tasks import adopted

    for run in adopted():
        run.report_unbuilt("its scheduler gave this run nothing to do")


def render(options: Namespace) -> int:
    """Write an external engine's files and start scripts without starting it."""
    from pipeline.engines import program

    planned, store = prepare_plan(options.overrides, options.config_dir, target=target_of(options))
    if all(spec.stage.program is None for spec in planned.requested):
        rule = "is for engines that are programs of their own; engine=local has no files to write"
        raise ConfigError([Problem("--render", None, rule, "see grpoflow plan --json for its commands")])
    scripts, ready = program.write_files(planned, store)
    for note in planned.notes:
        print(f"note: {note}")
    if not ready:
        print("note: its inputs are not in the store yet; `grpoflow run` makes them before the engine starts")
    for script in scripts:
        print(script)
    return Exit.DONE
