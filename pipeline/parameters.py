"""Luigi parameters of `luigi --module pipeline`, which refuse malformed values before anything runs."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

import luigi
from luigi.cmdline_parser import CmdlineParser

from pipeline.errors import ConfigError, Exit, Problem
from pipeline.plan.target import stage_names
from pipeline.terminal import install_streams

QUOTING = """for example --overrides 'seed=1 train.beta=0.02' or '["seed=1"]'"""


class OverridesParameter(luigi.Parameter):
    """Hydra overrides as one value: a shell-split string, or a JSON list.

    The value is a canonical JSON list, since Luigi compares parameters with == and shows them as text.
    """

    def parse(self, text: str) -> str:
        """Return canonical JSON of `text`; end the process if it is malformed."""
        stripped = text.strip()
        try:
            parsed = json.loads(stripped) if stripped.startswith("[") else shlex.split(stripped)
        except ValueError as error:
            refuse(Problem("--overrides", text, f"cannot be split into KEY=VALUE: {error}", QUOTING))
        if not all(isinstance(item, str) for item in parsed):
            refuse(Problem("--overrides", text, "a JSON list must hold text only", QUOTING))
        return json.dumps(parsed)


class StagesParameter(luigi.OptionalParameter):
    """Stage names; empty names are refused, because they usually come from an unset shell variable."""

    def __init__(self, option: str, description: str) -> None:
        super().__init__(default=None, description=description)
        self._option = option

    def parse(self, text: str) -> str:
        """Return `text`; end the process if it contains an empty name."""
        try:
            stage_names(self._option, [text])
        except ConfigError as error:
            refuse(*error.problems)
        return text


def refuse_empty_options(names: Sequence[str]) -> None:
    """End the process if an option is empty on the command line, which Luigi would treat as absent."""
    parser = CmdlineParser.get_instance()
    values = vars(parser.known_args) if parser is not None else {}
    for name in names:
        if values.get(name) == "" or values.get(f"RunGRPO_{name}") == "":
            refuse(Problem(f"--{name}", "", "is empty", "name a stage, or omit the option"))


def refuse(*problems: Problem) -> NoReturn:
    """Print problems of the command line and end the process."""
    install_streams()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(Exit.INVALID)
