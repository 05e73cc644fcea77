"""Shared parts of the commands: registration, common options and access to stores and runs."""

from __future__ import annotations

import argparse
import re
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from pipeline.config.store_path import store_path
from pipeline.errors import Exit
from pipeline.plan.target import Target
from pipeline.store.store import Store
from pipeline.terminal import say, wrapped

OVERRIDES = """overrides are Hydra's; KEY=VALUE changes a value or chooses from a group:
  seed=1                          another seed
  train.beta=0.02 train.steps=80  values of a group
  layout=dp2_mp1_pp1              any layout by its name
  store=/data/store               another artifact store
groups: model layout dataset fetch tokenize reward engine rollout sft train
  evaluate export launcher remote experiment"""


def bounded(least: int, most: int | None = None) -> Callable[[str], int]:
    """Return the type of a numeric option: a whole number within bounds."""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"

    def parse(text: str) -> int:
        number = int(text) if re.fullmatch(r"-?\d{1,18}", text) else None
        if number is None or number < least or (most is not None and number > most):
            raise argparse.ArgumentTypeError(f"{text}: must be a whole number {bounds}")
        return number

    return parse


class Parser(argparse.ArgumentParser):
    """Parser whose errors fit the terminal."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with 2."""
        self.print_usage(sys.stderr)
        say(f"{self.prog}: error: {message}", stderr=True)
        sys.exit(Exit.INVALID)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Help whose lines break between words only; lists of names and examples stay lists."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrapped(" ".join(text.split()), width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        lines = []
        for line in text.split("\n"):
            name = re.match(r" +\S.*? {2,}(?=\S)", line)
            indent = "    " if line[:1] == " " else ""
            lines += _entry(line, name[0], width + 2) if name else wrapped(line, width + 2, indent)
        return "\n".join(lines)

    def _format_usage(self, *arguments: Any) -> str:
        lines = super()._format_usage(*arguments).split("\n")
        return "\n".join(part for line in lines for part in wrapped(line, self._width + 2, "       "))


def _entry(line: str, name: str, width: int) -> list[str]:
    """Return an entry of a list, whose text begins after `name`, within `width` columns."""
    room = width - len(name)
    if room < 20:
        return [*wrapped(name.rstrip(), width, "    "), *wrapped(f"    {line[len(name) :]}", width)]
    first, *more = wrapped(line[len(name) :], room)
    return [name + first, *(" " * len(name) + text for text in more)]


class Commands:
    """Registry to which each command module adds its parsers."""

    def __init__(self, parsers: argparse._SubParsersAction[Any], program: str = "grpoflow") -> None:
        """`program`: the words before a command's name."""
        self._parsers, self._program = parsers, program
        self.help: dict[str, str] = {}
        """Help text of each command."""
        self.parsers: dict[str, argparse.ArgumentParser] = {}
        """Parser of each command, including the commands of groups, by its words without the program."""

    def add(
        self, name: str, action: Callable[[Namespace], int], help: str, *examples: str, overrides: bool = True
    ) -> argparse.ArgumentParser:
        """Add a command; `help` is one line in lower case, `examples` are arguments of example commands.

        `overrides` is False for a command that reads no configuration.
        """
        command = f"  {self._program} {name}"
        lines = "".join(f"{command} {example}\n" for example in examples)
        parser: argparse.ArgumentParser = self._parsers.add_parser(
            name,
            help=help,
            description=f"{help[0].upper()}{help[1:]}.",
            epilog=f"examples:\n{command}\n{lines}" + (f"\n{OVERRIDES}" if overrides else ""),
            formatter_class=HelpFormatter,
        )
        parser.set_defaults(action=action, parser=parser, reads_overrides=overrides, overrides=[])
        if overrides:
            parser.add_argument("--config-dir", type=Path, help="directory with your own config groups")
        self.help[name] = help
        self.parsers[parser.prog.partition(" ")[2]] = parser
        return parser

    def group(self, name: str, help: str) -> Commands:
        """Add a command that has subcommands, and return their registry."""
        description = f"{help[0].upper()}{help[1:]}."
        parser = self._parsers.add_parser(
            name, help=help, description=description, formatter_class=HelpFormatter
        )
        parsers = parser.add_subparsers(metavar="TOOL", required=True)
        self.help[name] = help
        tools = Commands(parsers, f"{self._program} {name}")
        tools.parsers = self.parsers
        return tools

    def add_overrides(self) -> None:
        """Add the overrides after all other positional arguments of the commands that read them."""
        for parser in self.parsers.values():
            if any(action.required for action in parser._actions):  # then the command alone is no example
                parser.epilog = (parser.epilog or "").replace(f"  {parser.prog}\n", "", 1)
            if parser.get_default("reads_overrides"):
                parser.add_argument(
                    "overrides", nargs="*", default=[], metavar="KEY=VALUE", help="Hydra overrides"
                )


def add_run(parser: argparse.ArgumentParser, default: str) -> None:
    """Add an optional argument RUN; `default` describes its default in the help."""
    meaning = f"id, beginning of an id, name, or last (default: {default})"
    parser.add_argument("run", metavar="RUN", nargs="?", help=meaning)


def add_json(parser: argparse.ArgumentParser, content: str = "") -> None:
    """Add --json; `content` describes what it prints."""
    meaning = "machine-readable output" + (f": {content}" if content else "")
    parser.add_argument("--json", action="store_true", help=meaning)


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add --config, and --until, --only and --force, which select stages."""
    add_configuration(parser)
    parser.add_argument("--until", metavar="STAGE", help="all stages up to this one, in the graph's order")
    rebuild = "rebuild this stage and everything downstream; existing artifacts stay valid until their "
    rebuild += "replacements are complete"
    only = "only this stage and everything upstream of it"
    for option, meaning in (("--only", only), ("--force", rebuild)):
        meaning += "; may be repeated, or separate stages with commas"
        parser.add_argument(option, metavar="STAGE", action="append", default=[], help=meaning)


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add --config."""
    parser.add_argument(
        "--config",
        dest="config_file",
        type=Path,
        metavar="FILE",
        help="values from a YAML file, for example the output of `grpoflow config`; overrides win",
    )


def read_configuration(options: Namespace) -> None:
    """Put the values of --config before the overrides of the command line."""
    overrides = options.overrides
    if getattr(options, "config_file", None) is not None:
        from pipeline.config import file

        options.overrides = [*file.read(options.config_file, overrides, options.config_dir), *overrides]


def target_of(options: Namespace) -> Target:
    """Return the stages that the options request."""
    return Target.parse(options.until, options.only, options.force)


def store_of(options: Namespace) -> Store:
    """Return the store of a command that reads nothing else of the configuration."""
    return Store(store_path(options.overrides, options.config_dir))
