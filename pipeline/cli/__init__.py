"""The `grpoflow` command line. Each module contains the parser, help and code of its commands."""

import argparse
import atexit
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

from pipeline.terminal import standard_streams

COMMANDS = {
    "run": "run", "plan": "plan", "rehearse": "rehearse", "sweep": "sweep", "runs": "runs", "show": "runs",
    "diff": "runs", "report": "runs", "verify": "store", "gc": "store", "ui": "pages", "watch": "pages",
    "layouts": "layouts", "config": "config", "logs": "logs", "completion": "completion",
    "doctor": "doctor", "diagnose": "diagnose", "strategy": "weights", "convert": "weights",
    "split": "weights", "merge": "weights", "reshard": "weights", "export": "export",
    "serve-check": "serve_check", "tokenize": "dataset", "probe": "dataset",
    "push": "remote", "pull": "remote", "remote": "remote",
}  # fmt: skip
"""Module of each command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code (pipeline.errors.Exit)."""
    if arguments is None:  # in a process for one command, garbage collection costs time and frees little
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)  # saves a garbage collection at the interpreter's end
    with standard_streams() as streams:
        try:
            code = _run_flushed(arguments)
        except BrokenPipeError:
            if not streams.has_lost_reader():
                raise
            return 128 + signal.SIGPIPE
        except SystemExit as exit:
            if exit.code != 0 or not streams.report_failure():
                raise
            return 1
        is_lost = streams.report_failure()
        return 1 if is_lost and code in (0, 10) else code


def _run_flushed(arguments: Sequence[str] | None) -> int:
    try:
        return _run(arguments)
    finally:
        sys.stdout.flush()  # a failure at the interpreter's end could not be reported


def _run(arguments: Sequence[str] | None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # import the requested command's module only: fully cached runs must not wait for the reports' libraries
    requested = COMMANDS.get(arguments[0]) if arguments else None
    parser = make_parser([requested] if requested else None)
    if "_ARGCOMPLETE" in os.environ:
        from pipeline.cli.completion import complete

        words = os.environ.get("COMP_LINE", "").split()
        requested = COMMANDS.get(words[1]) if len(words) > 1 else None
        complete(make_parser([requested] if requested else None))
    options, remaining = parser.parse_known_args(arguments)  # argparse accepts no positionals after an option
    if any(word.startswith("-") or "=" not in word for word in remaining):
        parser.error(f"unrecognized arguments: {' '.join(remaining)}")
    options.overrides += remaining
    if options.run_is_optional and "=" in (options.run or ""):
        options.run, options.overrides = None, [options.run, *options.overrides]  # RUN was omitted
    from pipeline.cli.command import read_configuration
    from pipeline.errors import REPORTED, ConfigError, Exit, check_working_directory

    try:
        check_working_directory()
        read_configuration(options)
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


class Parser(argparse.ArgumentParser):
    """Argument parser that raises an error if its help cannot be written; argparse ignores that."""

    def print_help(self, file: Any = None) -> None:
        """Print the help to `file`, or to stdout."""
        (file or sys.stdout).write(self.format_help())


def make_parser(modules: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser with the commands of these modules; None: of all modules."""
    from pipeline.cli.command import OVERRIDES, Commands

    parser: argparse.ArgumentParser = Parser(
        prog="grpoflow",
        description="GRPO post-training on MindSpore as one cached, declarative graph.",
        epilog=f"examples:\n  grpoflow plan\n  grpoflow run seed=1 train.beta=0.02\n\n{OVERRIDES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in modules or dict.fromkeys(COMMANDS.values()):
        importlib.import_module(f"{__name__}.{module}").register(Commands(parsers))
    for command in parsers.choices.values():
        if any(action.required for action in command._actions):  # then the bare command is no example
            command.epilog = (command.epilog or "").replace(f"  {command.prog}\n", "", 1)
        command.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides")
    return parser


if __name__ == "__main__":
    sys.exit(main())
