"""`grpoflow run`, the same code path as `luigi --module pipeline RunGRPO`, and `grpoflow sweep`."""

import sys
from argparse import ArgumentParser, Namespace
from typing import Any

from pipeline.cli.command import Commands, add_json, add_target, bounded, target_of
from pipeline.errors import REPORTED, ConfigError, Exit, Problem, StoreError, report
from pipeline.plan import checks
from pipeline.run import detached
from pipeline.run.run import Run, begin, prepare_plan
from pipeline.store import history
from pipeline.store.attempt import is_held
from pipeline.terminal import as_json, say

DETACH = "--detach"


def register(commands: Commands) -> None:
    """Add `run` and `sweep`."""
    parser = commands.add(
        "run",
        run,
        "run the stages that are not cached, from fetch to report",
        "seed=1 train.beta=0.02",
        "--until split model=qwen2_5_7b   # weights now, cards later",
        "--force grpo",
    )
    add_target(parser)
    parser.add_argument(
        "--workers",
        type=bounded(1, 256),
        default=1,
        metavar="N",
        help="stages that may run at the same time",
    )
    add_json(parser, "one line with the run, its store and result, or the error")
    _add_detach(parser, "run")
    parser.add_argument(
        "--render",
        "--dry-run",
        action="store_true",
        help="only write an external engine's configuration files and a start script per node",
    )

    parser = commands.add(
        "sweep",
        sweep,
        "run several configurations (points) as one graph; shared stages run once",
        "-m train.beta=0.0,0.01 seed=0,1",
    )
    add_target(parser)
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="implied; accepted for compatibility with Hydra"
    )
    _add_detach(parser, "sweep")
    parser.add_argument("--plan", action="store_true", help="show the merged graph without starting it")
    add_json(parser, "with --plan, a line per point")
    parser.add_argument(
        "--cards",
        type=bounded(1, 1 << 20),
        metavar="N",
        help="cards that points use at the same time, here or in jobs (default: here as many as the "
        "largest point needs, in jobs any number)",
    )
    parser.add_argument(
        "--jobs",
        type=bounded(1, 1024),
        metavar="N",
        help="jobs (launcher.stages) in the queue of Slurm or Ray at the same time (default: 32)",
    )


def _add_detach(parser: ArgumentParser, what: str) -> None:
    meaning = (
        f"print the {what}'s id and return, while it goes on without this terminal; see watch, logs, stop"
    )
    parser.add_argument(DETACH, action="store_true", help=meaning)


def run(options: Namespace) -> int:
    """Begin the run and build the missing stages with Luigi."""
    if options.render:
        return render(options)
    if options.detach:
        return detach(options)
    try:
        target = target_of(options)
        begun = begin(options.overrides, options.config_dir, target, prints_result=not options.json)
    except REPORTED as error:
        report(error)
        if options.json:
            print(as_json({"error": str(error)}, indent=None))
        return Exit.INVALID  # also if this machine cannot build what is missing: nothing was started
    detached.has_begun(begun.store.root, begun.id)
    code = build(begun, options.workers)
    if options.json:
        print(as_json(outcome(begun), indent=None))
    return code


def detach(options: Namespace) -> int:
    """Start the same command line without a terminal; print the id of its run or sweep."""
    words = [word for word in options.arguments if word != DETACH]
    begun, output, code = detached.start(words)
    if begun is None:
        print(output, end="", file=sys.stderr if code else sys.stdout)
        return code
    print(as_json({"id": begun}, indent=None) if options.json else begun, flush=True)
    store = "".join(f" {word}" for word in options.overrides if word.startswith("store="))
    say(f"grpoflow watch {begun}{store}   # also logs -f, and stop", stderr=True)
    return Exit.DONE


def build(begun: Run, workers: int) -> int:
    """Build what a run is missing; return the exit code."""
    if not begun.missing():
        begun.report()  # Luigi would do nothing else, and importing it would double the time
        return Exit.DONE
    from pipeline import tasks

    if tasks.build([begun], workers, begun.plan.cards):
        return Exit.DONE
    begun.report_unbuilt()
    return Exit.FAILED


def outcome(ended: Run) -> dict[str, Any]:
    """Return what `--json` prints about a run that has ended."""
    record = history.runs(ended.store.root)[ended.id]
    values = {"run": record.id, "store": str(ended.store.root), "state": record.state}
    if record.message:
        values["error"] = record.message
    return {**values, "result": record.result, "artifacts": dict(record.artifacts)}


def render(options: Namespace) -> int:
    """Write an external engine's files and start scripts without starting it."""
    from pipeline.run import program

    planned, store = prepare_plan(options.overrides, options.config_dir, target=target_of(options))
    outside = [spec for spec in planned.requested if spec.stage.program is not None]
    if not outside:
        rule = "is for engines that are programs of their own; engine=local has no files to write"
        raise ConfigError([Problem("--render", None, rule, "see grpoflow plan --json for its commands")])
    for work in (store.work_dir(spec.key) for spec in outside):
        if is_held(work):  # start.json records the results that exist before the program starts
            raise StoreError(f"{work}: a run uses these files now, and --render would replace them; wait")
    scripts, ready = program.write_files(planned, store)
    for note in checks.notes(planned.config):
        say(f"note: {note}")
    if not ready:
        say("note: its inputs are not in the store yet; `grpoflow run` makes them before the engine starts")
    for script in scripts:
        print(script)
    return Exit.DONE


def sweep(options: Namespace) -> int:
    """Run or plan the points of a sweep as one graph."""
    if options.json and not options.plan:
        rule = "is for --plan; results are in the store, in sweeps/ID/sweep.json"
        raise ConfigError([Problem("--json", None, rule, "add --plan")])
    if options.detach and not options.plan:
        return detach(options)
    from pipeline.sweep.build import Sweep

    planned = Sweep(options.overrides, options.config_dir, target_of(options), options.cards, options.jobs)
    return planned.show_plan(options.json) if options.plan else planned.run()
