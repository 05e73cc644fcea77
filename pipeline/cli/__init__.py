"""The `grpoflow` command line. Each module contains the parser, help and code of its commands."""

import argparse
import atexit
import difflib
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence

from pipeline.cli.command import OVERRIDES, Commands, HelpFormatter, Parser, read_configuration
from pipeline.errors import REPORTED, ConfigError, Exit, check_working_directory, report
from pipeline.run import signals
from pipeline.terminal import has_lost_reader, install_streams, report_lost_output
from stages.catalog import STAGES

SECTIONS = {
    "run": {"run": "run", "plan": "plan", "sweep": "run", "rehearse": "rehearse"},
    "inspect": {
        "runs": "runs", "show": "runs", "diff": "runs", "logs": "logs", "report": "pages", "watch": "pages",
        "stop": "stop", "ui": "pages",
    },
    "check": {
        "config": "config", "layouts": "config", "doctor": "doctor", "probe": "dataset",
        "diagnose": "logs", "serve": "serve_check", "serve-check": "serve_check",
    },
    "store": {"verify": "store", "gc": "store", "push": "remote", "pull": "remote", "remote": "remote"},
    "weights and data": {"weights": "weights", "tokenize": "dataset"},
    "shell": {"completion": "completion"},
}  # fmt: skip
"""Section of the help -> command -> module."""
COMMANDS = {command: module for section in SECTIONS.values() for command, module in section.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code (pipeline.errors.Exit)."""
    if arguments is None:  # in a process for one command, garbage collection costs time and frees little
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)  # saves a garbage collection at the interpreter's end
    install_streams()
    try:
        try:
            code = _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:  # after --help, too, which exits; a failure at the interpreter's end could not be reported
            sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        if has_lost_reader():
            return 128 + signal.SIGPIPE
        if isinstance(error, SystemExit) and error.code == 0 and report_lost_output():
            return 1
        raise
    return 1 if report_lost_output() and code in (0, 10) else code


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    if "_ARGCOMPLETE" in os.environ:
        from pipeline.cli.completion import complete

        complete(*make_parsers(*os.environ.get("COMP_LINE", "").split()[1:2]))
    options = _parse(arguments)
    try:
        check_working_directory()
        signals.install()
        read_configuration(options)
        return int(options.action(options))
    except REPORTED as error:
        report(error)
        return Exit.INVALID if isinstance(error, ConfigError) else Exit.FAILED


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Parse a command line; exit with 2 if it is invalid."""
    command = arguments[0] if arguments else ""
    parser, _ = make_parsers(command)
    if command and not command.startswith("-") and command not in COMMANDS:
        parser.error(f"unknown command {command!r}{_suggestion(command)}")
    options, remaining = parser.parse_known_args(arguments)  # argparse accepts no positionals after an option
    accepted = "" if options.reads_overrides else "store="  # every command accepts store=DIR
    unknown = [
        word for word in remaining if word[:1] == "-" or "=" not in word or not word.startswith(accepted)
    ]
    if unknown:
        known = [name for action in options.parser._actions for name in action.option_strings]
        near = difflib.get_close_matches(unknown[0].partition("=")[0], known, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    options.arguments = list(arguments)
    options.overrides += remaining
    _move_overrides(options)
    return options


def _move_overrides(options: argparse.Namespace) -> None:
    """Move overrides to `options.overrides` if argparse took them for an argument that was omitted."""
    for name in ("compare", "words", "stage", "run", "other"):
        value = getattr(options, name, None)
        if isinstance(value, list):
            options.overrides = [*(word for word in value if "=" in word), *options.overrides]
            setattr(options, name, [word for word in value if "=" not in word])
        elif "=" in (value or ""):
            options.overrides = [value, *options.overrides]
            setattr(options, name, None)


def _suggestion(command: str) -> str:
    """Return a hint for an unknown command: the nearest one, or how to run a stage of that name."""
    hints = [f"to run that stage: grpoflow run --only {command}"] if command in STAGES else []
    if command in ("convert", "strategy", "split", "merge", "reshard", "export"):
        hints.append(f"the tool for single files: grpoflow weights {command}")
    near = difflib.get_close_matches(command, COMMANDS, 1)
    hints += [f"did you mean {near[0]}?"] if near and not hints else []
    return "".join(f"; {hint}" for hint in hints)


def make_parsers(
    command: str | None = None,
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Return the parser of the command line, and that of each command by its words (`weights split`).

    If `command` is the name of a command, only its module is imported and only its parser exists.

    A run with nothing to do takes a quarter of a second, so it must not import other commands.
    """
    parser = Parser(
        prog="grpoflow",
        usage="grpoflow COMMAND [OPTIONS] [KEY=VALUE ...]",
        formatter_class=HelpFormatter,
    )
    parsers = parser.add_subparsers(metavar="COMMAND", required=True, prog="grpoflow", help=argparse.SUPPRESS)
    commands = Commands(parsers)
    modules = [COMMANDS[command]] if command in COMMANDS else dict.fromkeys(COMMANDS.values())
    for module in modules:
        importlib.import_module(f"{__name__}.{module}").register(commands)
    commands.add_overrides()
    if command not in COMMANDS:
        from importlib.metadata import version

        parser.add_argument("--version", action="version", version=f"grpoflow {version('grpoflow')}")
        parser.description = "GRPO post-training on MindSpore as one cached, declarative graph.\n" + "".join(
            f"\n{title}:\n" + "".join(f"  {name:12} {commands.help[name]}\n" for name in section)
            for title, section in SECTIONS.items()
        )
        parser.epilog = f"examples:\n  grpoflow plan\n  grpoflow run seed=1 train.beta=0.02\n\n{OVERRIDES}"
    return parser, commands.parsers
