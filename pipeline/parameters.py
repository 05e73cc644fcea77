"""Luigi parameters of `luigi --module pipeline`, which refuse malformed values before anything runs."""

from __future__ import annotations

import json
import shlex
import sys
from typing import NoReturn

import luigi

from pipeline.errors import ConfigError, Exit, Problem
from pipeline.plan.target import Target
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


def parse_target(until: str | None, only: str | None, force: str | None) -> Target:
    """Return the target of RunGRPO's options; end the process if one of them is malformed."""
    try:
        return Target.parse(until, [only] if only else [], [force] if force else [])
    except ConfigError as error:
        refuse(*error.problems)


def refuse(*problems: Problem) -> NoReturn:
    """Print problems of the command line and end the process."""
    install_streams()
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    sys.exit(Exit.INVALID)
