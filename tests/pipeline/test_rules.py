"""Every rule has a configuration that breaks it and a similar one that keeps it."""

import functools
import importlib.util
import json

import pytest

from pipeline import engines
from pipeline.config import rules
from pipeline.config.load import load
from stages.base.errors import ConfigError
from tests.pipeline.rule_cases import CASES, MINDRLHF

SEVEN = (*MINDRLHF, "model=qwen2_5_7b", "layout=dp1_mp4_pp2")


def rows():
    """Every rule by its id."""
    tables = (rules.FAMILY, rules.RULES, rules.SECTIONS)
    asked = [engines.get(name).rules for name in (*engines.MODULES, engines.SUPERVISED)]
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
