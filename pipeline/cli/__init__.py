"""The `grpoflow` command: what people type. A file per command, with its parser, help and body."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

COMMANDS = (
    "run", "plan", "rehearse", "sweep", "verify", "gc", "runs", "show", "diff", "doctor", "diagnose", "ui",
    "layouts", "report", "watch", "serve-check", "strategy", "convert", "split", "merge", "reshard", "export",
    "tokenize", "probe",
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code (pipeline.errors.Exit)."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # only what is typed is imported: a run with nothing to do must not wait for the reports' libraries
    typed = tuple(name for name in COMMANDS if arguments[:1] == [name])
    parser = make_parser(typed or COMMANDS)
    options, rest = parser.parse_known_args(arguments)  # argparse takes no positionals after an option
    if any(one.startswith("-") or "=" not in one for one in rest):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.overrides += rest
    if options.run_is_optional and "=" in (options.run or ""):
        options.run, options.overrides = None, [options.run, *options.overrides]  # RUN was left out
    from pipeline.errors import REPORTED, ConfigError, Exit

    try:
        if options.tidies:
            from pipeline.run import signals

            signals.install()
        return int(options.action(options))
    except ConfigError as error:
        for problem in error.problems:
            print(f"error: {problem}", file=sys.stderr)
        return Exit.INVALID
    except REPORTED as error:
        print(f"error: {error}", file=sys.stderr)
        return Exit.FAILED


def make_parser(names: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of these commands, in this order."""
    from pipeline.cli.command import OVERRIDES, Commands

    parser = argparse.ArgumentParser(
        prog="grpoflow",
        description="GRPO post-training of Qwen2.5 on MindSpore as one cached, declarative graph.",
        epilog=f"examples:\n  grpoflow plan\n  grpoflow run seed=1 train.beta=0.02\n\n{OVERRIDES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name in names:
        module = importlib.import_module(f"{__name__}.{name.replace('-', '_')}")
        module.register(Commands(parsers))
    for command in parsers.choices.values():
        command.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides")
    return parser


if __name__ == "__main__":
    sys.exit(main())
