"""The `grpoflow` command: what people type. `luigi --module pipeline RunGRPO` is the same path."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

EXIT_DONE, EXIT_FAILED, EXIT_INVALID, EXIT_PENDING = 0, 1, 2, 10

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
    from pipeline.errors import REPORTED, ConfigError

    try:
        return int(options.action(options))
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
        epilog="examples:\n  grpoflow plan\n  grpoflow run\n  grpoflow run seed=1 train.beta=0.02\n\n"
        + OVERRIDES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run = _command(commands, "run", "run what is not in the store yet, from fetch to report")
    run.add_argument("--workers", type=int, default=1, help="stages that may run at the same time")
    run.set_defaults(action=_run)
    plan = _command(
        commands, "plan", "show what a run would do and why; starts nothing (exit 10: work pending)"
    )
    plan.add_argument("--json", action="store_true", help="for programs")
    plan.set_defaults(action=_plan)
    return parser


def _command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, help: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(
        name,
        help=help,
        description=help[0].upper() + help[1:] + ".",
        epilog=f"examples:\n  grpoflow {name}\n  grpoflow {name} seed=1 train.beta=0.02\n\n{OVERRIDES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("--config-dir", type=Path, help="directory with your own config groups")
    command.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides")
    return command


def _run(options: argparse.Namespace) -> int:
    from luigi.cmdline import luigi_run

    arguments = ["--module", "pipeline", "RunGRPO", f"--overrides={json.dumps(options.overrides)}"]
    arguments.append(f"--workers={options.workers}")
    if options.config_dir is not None:
        arguments.append(f"--config-dir={options.config_dir}")
    try:
        luigi_run(arguments)
    except SystemExit as exit:
        return int(exit.code or 0)
    return EXIT_DONE


def _plan(options: argparse.Namespace) -> int:
    from rich.console import Console

    from pipeline import explain
    from pipeline.run import prepare_plan

    plan, store = prepare_plan(options.overrides, options.config_dir)
    rows = explain.explain(plan, store)
    if options.json:
        print(json.dumps(explain.as_json(plan, rows), indent=1))
    else:
        explain.show(plan, rows, Console(highlight=False))
    return EXIT_PENDING if any(row.state != "CACHED" for row in rows) else EXIT_DONE


if __name__ == "__main__":
    sys.exit(main())
