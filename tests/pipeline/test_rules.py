"""Every rule has a configuration that breaks it and one, next to it, that keeps it; every range holds."""

import copy
import dataclasses
import functools
import importlib.util
import json
import typing
from collections.abc import Mapping
from typing import Annotated

import pytest
from annotated_types import Ge, Gt, Le

from pipeline import engines
from pipeline.config import rules
from pipeline.config.load import load
from pipeline.config.sections import Config
from stages.base.errors import ConfigError
from stages.base.reader import read
from tests.pipeline.plans import types_of
from tests.pipeline.rule_cases import CASES, MINDRLHF

SEVEN = (*MINDRLHF, "model=qwen2_5_7b", "layout=dp1_mp4_pp2")


def rows():
    """Every rule by its id."""
    tables = (rules.FAMILY, rules.RULES, rules.SECTIONS)
    asked = [engines.of(name).rules for name in (*engines.MODULES, engines.SUPERVISED)]
    return {row.id: row for table in (*tables, *asked) for row in table.rows()}


@functools.cache
def problems(overrides):
    try:
        load(overrides)
    except ConfigError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(("row", "breaks", "keeps"), CASES, ids=[" ".join(case[1][-2:]) for case in CASES])
def test_the_smallest_config_that_breaks_it_and_the_smallest_that_keeps_it(row, breaks, keeps):
    told = [problem for problem in problems(breaks) if problem.id == row]
    assert told and all(problem.remedy for problem in told), problems(breaks)
    assert all(f"({rows()[row].source})" in problem.rule for problem in told)
    assert problems(keeps) == ()


NOT_INSTALLED = {
    "reward.maths": (("reward.functions=[maths]", "reward.weights=[1.0]"), "pip install math-verify"),
    "train.installed_logger": (("train.loggers=[wandb]",), "pip install 'grpoflow[loggers]'"),
}


@pytest.mark.parametrize("row", NOT_INSTALLED)
def test_what_needs_a_package_says_which(row, monkeypatch):
    overrides, remedy = NOT_INSTALLED[row]
    for found, broken in ((object(), []), (None, [(row, remedy)])):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, found=found: found)
        problems.cache_clear()
        assert [(problem.id, problem.remedy) for problem in problems(overrides)] == broken
    problems.cache_clear()


def test_a_tokenizer_without_endoftext_is_refused(tmp_path):
    added = {"added_tokens_decoder": {"2": {"content": "</s>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(added))
    told = problems((*SEVEN, f"model.path={tmp_path}"))
    assert [problem.id for problem in told] == ["mindrlhf_generation.endoftext"]


def test_every_rule_has_a_case_and_a_source():
    tried = {*(case[0] for case in CASES), *NOT_INSTALLED, "mindrlhf_generation.endoftext"}
    assert tried == set(rows())
    assert [row.id for row in rows().values() if not row.source] == []


def bounded(cls, values, path):
    """(path, bound, a value beyond it, the value at it) of every bound of a section and of those below it."""
    for name, hint in types_of(cls).items():
        inner = [one for one in (hint, *typing.get_args(hint)) if typing.get_origin(one) is Annotated]
        for one in inner:
            step = 1 if typing.get_args(one)[0] is int else 1e-6
            for bound in one.__metadata__:
                if isinstance(bound, Ge):
                    yield f"{path}{name}", bound, bound.ge - step, bound.ge
                elif isinstance(bound, Gt):
                    yield f"{path}{name}", bound, bound.gt, bound.gt + step
                elif isinstance(bound, Le):
                    yield f"{path}{name}", bound, bound.le + step, bound.le
        nested = [one for one in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(one)]
        below = values[name]
        if nested and isinstance(below, Mapping):
            options = [
                one for one in nested if set(below) == {field.name for field in dataclasses.fields(one)}
            ]
            yield from bounded(options[0], below, f"{path}{name}.")  # type: ignore[arg-type]


@pytest.mark.parametrize("base", [(), SEVEN, ("launcher.timeout_s=5",)], ids=["local", "mindrlhf", "timeout"])
def test_every_range_is_kept(base):
    plain = load(base).plain()
    seen = 0
    for path, bound, beyond, at in bounded(Config, plain, ""):
        *groups, name = path.split(".")
        for value, wrong in ((beyond, True), (at, False)):
            values = copy.deepcopy(plain)
            functools.reduce(lambda section, group: section[group], groups, values)[name] = value
            try:
                read(Config, values)
                told = []
            except ConfigError as error:
                told = [problem for problem in error.problems if problem.path == path]
            assert bool(told) == wrong, (path, bound, value)
        seen += 1
    assert seen > 60
