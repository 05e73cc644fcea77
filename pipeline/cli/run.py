"""`grpoflow run`: one code path with `luigi --module pipeline RunGRPO`."""

from __future__ import annotations

import functools
import json
import logging
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import filterwarnings

from pipeline.cli.command import Commands, add_configuration, add_target, target_of
from pipeline.config.load import load
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.run.run import begin, prepare_plan

if TYPE_CHECKING:
    from pipeline.plan.target import Target
    from pipeline.run.run import Run
    from pipeline.store.ui_address import Place


def register(commands: Commands) -> None:
    """Add `run`."""
    parser = commands.add(
        "run",
        run,
        "run what is not in the store yet, from fetch to report",
        "seed=1 train.beta=0.02",
        "--until split model=qwen2_5_7b   # weights and data now, cards later",
        "--force grpo",
    )
    add_configuration(parser)
    add_target(parser)
    parser.add_argument("--workers", type=int, default=1, help="stages that may run at the same time")
    parser.add_argument("--ui", action="store_true", help="show its tasks in the store's `grpoflow ui`")
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="write the engine's files and one start script per node; start nothing",
    )


def run(options: Namespace) -> int:
    """Build what is missing through Luigi's own command line: one path with `luigi --module pipeline`."""
    if options.dry_run:
        return dry_run(options)
    target = target_of(options)
    if options.brought:
        planned, store = prepare_plan(options.overrides, options.config_dir, target=target)
        from pipeline.plan import brought

        for told in brought.take_in(store, [planned], options.brought):
            print(told, file=sys.stderr, flush=True)
    place = _use_ui(options) if options.ui else None
    try:
        begun = begin(options.overrides, options.config_dir, target) if place is None else None
        if begun is not None and begun.is_done():
            begun.report()  # all that Luigi would do, which takes as long to import as this run takes
        else:
            _build(options, target, begun)
    except SystemExit as exit:
        code = int(exit.code or 0)
        if code != Exit.DONE:
            _tell_what_luigi_left(place)
        return code
    return Exit.DONE


def _build(options: Namespace, target: Target, begun: Run | None) -> None:
    """Let Luigi build what is missing, of the run that has begun where one has."""
    from luigi.cmdline import luigi_run

    from pipeline import tasks

    config_dir = None if options.config_dir is None else str(options.config_dir)
    if begun is not None:
        tasks.adopt(json.dumps(options.overrides), config_dir, begun)
    # pipeline itself is imported already, without its tasks
    arguments = ["--module", "pipeline.tasks", "RunGRPO", f"--overrides={json.dumps(options.overrides)}"]
    arguments += [f"--{option}={names}" for option, names in target.options().items() if names]
    arguments.append(f"--workers={options.workers}")
    if config_dir is not None:
        arguments.append(f"--config-dir={config_dir}")
    luigi_run(arguments)


def _use_ui(options: Namespace) -> Place:
    """Let Luigi ask the scheduler of the store's ui, with the key that it takes.

    Raises:
        ConfigError: there is none that would do.
    """
    import luigi.rpc
    from luigi.configuration import get_config

    from pipeline.store import ui_address

    config = load(options.overrides, options.config_dir)
    place = ui_address.address(Path(config.store).absolute(), config.cards)
    luigi.rpc.HAS_REQUESTS = True
    luigi.rpc.RequestsFetcher = functools.partial(
        ui_address.Fetcher, place
    )  # Luigi knows no other way to say
    get_config().set("core", "local_scheduler", "false")
    get_config().set("core", "scheduler_url", "http://localhost")  # the fetcher knows where it is
    get_config().set("core", "rpc-retry-wait", "2")
    filterwarnings("ignore", ".*rpc_retry_wait.*")  # Luigi reads it, but not as a parameter of core
    logging.getLogger("luigi-interface").addFilter(
        lambda record: not (record.exc_info and isinstance(record.exc_info[1], luigi.rpc.RPCError))
    )
    return place


def _tell_what_luigi_left(place: Place | None) -> None:
    """Why a run ends without what it was to build, where no stage of it has failed."""
    if "luigi" not in sys.modules:  # it was not asked
        return
    from pipeline.store import ui_address
    from pipeline.tasks import adopted

    for run in adopted():
        missing = [spec for spec in run.plan.asked if not run.is_complete(spec.name)]
        if not missing or run.has_told_its_end():
            continue
        needed = max(spec.workers for spec in missing)
        reason = "its scheduler gave this run nothing to do" if place is None else None
        run.give_up(missing[0].name, reason or ui_address.obstacle(place, needed))  # type: ignore[arg-type]


def dry_run(options: Namespace) -> int:
    """Write what an engine would be started with; start nothing."""
    from pipeline.engines import program

    planned, store = prepare_plan(options.overrides, options.config_dir, target=target_of(options))
    if all(spec.program is None for spec in planned.asked):
        rule = "is for engines that are programs of their own; engine=local has no files to write"
        raise ConfigError([Problem("--dry-run", None, rule, "see grpoflow plan --json for its commands")])
    scripts, ready = program.write_files(planned, store)
    for note in planned.notes:
        print(f"note: {note}")
    if not ready:
        print("note: its inputs are not in the store yet; `grpoflow run` makes them before the engine starts")
    for script in scripts:
        print(script)
    return Exit.DONE
