"""The `grpoflow` command: what people type. `luigi --module pipeline RunGRPO` is the same path."""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

EXIT_FAILED, EXIT_INVALID = 1, 2

OVERRIDES = """overrides are Hydra's: KEY=VALUE changes a value or chooses from a group, for example
  seed=1                          another seed
  train.beta=0.02 train.steps=80  values of a group
  layout=dp2_mp1_pp1              any layout by its name
  store=/data/store               another artifact store
groups: model layout dataset tokenize reward engine rollout sft train evaluate export launcher experiment"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns the exit code (0 done, 1 failed, 2 invalid, 10 work pending)."""
    parser = _parser()
    options = parser.parse_args(arguments)
    from pipeline import commands
    from pipeline.errors import REPORTED, ConfigError

    try:
        return int(getattr(commands, options.command)(options))
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return EXIT_INVALID
    except REPORTED as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="grpoflow",
        description="GRPO post-training of Qwen2.5 on MindSpore as one cached, declarative graph.",
        epilog=f"examples:\n  grpoflow plan\n  grpoflow run seed=1 train.beta=0.02\n\n{OVERRIDES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add = functools.partial(_command, commands)
    run = add("run", "run what is not in the store yet, from fetch to report", "seed=1 train.beta=0.02")
    run.add_argument("--workers", type=int, default=1, help="stages that may run at the same time")
    plan = add(
        "plan", "show what a run would do and why; starts nothing (exit 10: work pending)", "train.beta=0.02"
    )
    plan.add_argument("--json", action="store_true", help="for programs")
    plan.add_argument(
        "--deep", action="store_true", help="read your own files again, whatever their times say"
    )
    verify = add(
        "verify", "check every artifact of the store (exit 1: damage found)", "--deep store=/data/store"
    )
    verify.add_argument("--deep", action="store_true", help="compare every file with its digest")
    verify.add_argument(
        "--repair", action="store_true", help="move damaged artifacts away, to be built again"
    )
    gc = add("gc", "list what no kept run needs; with --delete, remove it", "--keep 3 --delete")
    gc.add_argument("--keep", type=int, default=5, metavar="N", help="newest runs that are kept (default 5)")
    gc.add_argument("--delete", action="store_true", help="remove it; without this nothing is touched")
    runs = add("runs", "list the runs of the store; pin or name one", "--pin last")
    runs.add_argument("--json", action="store_true", help="for programs")
    runs.add_argument("--pin", metavar="RUN", help="keep its artifacts whatever gc is told")
    runs.add_argument("--unpin", metavar="RUN", help="give that up")
    runs.add_argument("--name", metavar="RUN=NAME", help="give a run a name; named runs are kept too")
    show = add("show", "show one run: settings, state, result, artifacts", "last")
    show.add_argument("run", metavar="RUN", help="id, beginning of an id, name, or last")
    diff = add("diff", "show how two runs differ in configuration and result", "20261121-0801 last")
    diff.add_argument("run", metavar="RUN_A")
    diff.add_argument("other", metavar="RUN_B")
    for command in (run, plan, verify, gc, runs, show, diff):
        command.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides")
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help: str, example: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=help,
        description=f"{help[0].upper()}{help[1:]}.",
        epilog=f"examples:\n  grpoflow {name}\n  grpoflow {name} {example}\n\n{OVERRIDES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--config-dir", type=Path, help="directory with config groups of your own")
    command.set_defaults(command=name)
    return command


if __name__ == "__main__":
    sys.exit(main())
