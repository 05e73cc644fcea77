"""Check of one rule of an engine: a configuration that breaks it, and a similar one that does not."""

from collections.abc import Sequence

import pytest

from pipeline.config.load import load
from stages.base.errors import ConfigError


def check_rule(base: Sequence[str], key: str, source: str, breaking: str, passing: str) -> None:
    """Load `base` with the overrides of each text; the first must name the key and a file of the source."""
    with pytest.raises(ConfigError) as refused:
        load([*base, *breaking.split()])
    problems = refused.value.problems
    (problem, *_) = [one for one in problems if one.path == key and source in one.source]
    assert problem.rule and problem.remedy
    load([*base, *passing.split()])
