"""The `grpoflow` command: what people type. Each module holds its commands' parser, help and body."""

import argparse
import atexit
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

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
    """Run one command; returns the exit code (pipeline.errors.Exit)."""
    if arguments is None:  # this process is ours: what it imports and plans is hardly garbage
        gc.set_threshold(100_000)
        atexit.register(gc.freeze)  # else the interpreter looks through all of it once more when it ends
    try:
        try:
            return _run(arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # at the interpreter's end it would be too late to be quiet
    except BrokenPipeError:
        if not _silence():
            raise
        return 128 + signal.SIGPIPE


def _silence() -> bool:
    """Let what is still to be printed vanish where its reader is gone; whether one is."""
    import select

    readers = select.poll()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        readers.register(stream.fileno(), 0)
    gone = [descriptor for descriptor, event in readers.poll(0) if event & select.POLLERR]
    for descriptor in gone:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
    return bool(gone)


def _run(arguments: Sequence[str] | None) -> int:
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    # only what is typed is imported: a run with nothing to do must not wait for the reports' libraries
    typed = COMMANDS.get(arguments[0]) if arguments else None
    parser = make_parser([typed] if typed else None)
    if "_ARGCOMPLETE" in os.environ:
        from pipeline.cli.completion import complete

        words = os.environ.get("COMP_LINE", "").split()
        asked = COMMANDS.get(words[1]) if len(words) > 1 else None
        complete(make_parser([asked] if asked else None))
    options, rest = parser.parse_known_args(arguments)  # argparse takes no positionals after an option
    if any(word.startswith("-") or "=" not in word for word in rest):
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    options.overrides += rest
    if options.run_is_optional and "=" in (options.run or ""):
        options.run, options.overrides = None, [options.run, *options.overrides]  # RUN was left out
    from pipeline.cli.command import read_configuration
    from pipeline.errors import REPORTED, ConfigError, Exit

    try:
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
    """Tells when its help reaches nobody, which argparse keeps to itself."""

    def print_help(self, file: Any = None) -> None:
        """Print it to `file`, or to stdout."""
        (file or sys.stdout).write(self.format_help())


def make_parser(modules: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The parser of these modules' commands; of all without."""
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
        if any(action.required for action in command._actions):  # the bare command is no example of those
            command.epilog = (command.epilog or "").replace(f"  {command.prog}\n", "", 1)
        command.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides")
    return parser


if __name__ == "__main__":
    sys.exit(main())
