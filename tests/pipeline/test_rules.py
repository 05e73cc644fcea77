"""Every rule has a breaking configuration and a similar passing configuration."""

import functools
import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

from pipeline import engines
from pipeline.config import rules
from pipeline.config.load import load
from stages.base.errors import ConfigError
from stages.engines.tables import PLAIN

SEVEN = ("engine=mindrlhf", "model.path=/models/qwen", "model=qwen2_5_7b", "layout=dp1_mp4_pp2")
UNSUPPORTED = {
    "loss_type": "dapo", "scale_advantages": "false", "importance_sampling_level": "sequence",
    "use_bias_correction_kl": "true", "mask_truncated_completions": "true", "resample_rounds": "1",
    "validate_every": "1", "lora_rank": "4", "max_kl": "1.0", "resume_from": "/x",
    "loggers": "[wandb]",
}  # fmt: skip
"""A value of each key of PLAIN that no outside engine supports."""


def read(group: dict) -> list[tuple[str, tuple[str, ...], tuple[str, ...]]]:
    """Return the rule's id, the breaking and the passing overrides of each case of a base configuration."""
    lines = group["cases"].splitlines()
    if "plain" in group:
        keys = group.get("only") or [key for key in PLAIN if key not in group.get("without", ())]
        lines += [f"{group['plain']}.{key}  train.{key}={UNSUPPORTED[key]}" for key in keys]
    result = []
    for line in lines:
        rule, breaking, *passing = (part.strip() for part in re.split(r"\s\s+(?:->\s+)?", line))
        overrides = (breaking.split(), " ".join(passing).split())
        result.append((rule, *((*group["base"], *more) for more in overrides)))
    return result


TABLE = yaml.safe_load((Path(__file__).parents[1] / "data/rule_cases.yaml").read_text(encoding="utf-8"))
CASES = [case for group in TABLE for case in read(group)]


def rows():
    """Return every rule by its id."""
    tables = (rules.FAMILY, rules.RULES, rules.SECTIONS)
    engine_rules = [engines.get(name).rules for name in engines.MODULES]
    return {row.id: row for table in (*tables, *engine_rules) for row in table.rows()}


@functools.cache
def problems(overrides):
    try:
        load(overrides)
    except ConfigError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    ("row", "breaking", "passing"), CASES, ids=[" ".join(case[1][-2:]) for case in CASES]
)
def test_each_rule_has_a_breaking_and_a_passing_configuration(row, breaking, passing):
    matching = [problem for problem in problems(breaking) if problem.id == row]
    assert matching and all(problem.remedy for problem in matching), problems(breaking)
    assert all(f"({rows()[row].source})" in problem.rule for problem in matching)
    assert problems(passing) == ()


def test_the_number_of_prompts_in_a_remedy_resolves_the_problem():
    checked = 0
    for row, breaking, _ in CASES:
        for problem in problems(breaking):
            number = re.fullmatch(r"use (\d+)", problem.remedy)
            if problem.id == row and row.endswith((".updates", ".reference_batches")) and number:
                assert problems((*breaking, f"train.prompts_per_step={number[1]}")) == (), breaking
                checked += 1
    assert checked == 5


NOT_INSTALLED = {"reward.maths": "pip install math-verify", "train.installed_logger": "pip install 'grpoflow"}


@pytest.mark.parametrize(
    ("row", "overrides"),
    [
        ("reward.maths", "reward.functions=[maths] reward.weights=[1.0]"),
        ("reward.maths", "reward=cosine reward.length.correct_by=maths"),
        ("train.installed_logger", "train.loggers=[wandb]"),
    ],
)
def test_a_missing_package_is_named(row, overrides, monkeypatch):
    for installed in (object(), None):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, installed=installed: installed)
        problems.cache_clear()
        matching = [problem.remedy for problem in problems(tuple(overrides.split())) if problem.id == row]
        assert len(matching) == (installed is None)
        assert all(remedy.startswith(NOT_INSTALLED[row]) for remedy in matching)
    problems.cache_clear()


def test_a_tokenizer_without_endoftext_is_refused(tmp_path):
    added = {"added_tokens_decoder": {"2": {"content": "</s>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(added))
    matching = problems((*SEVEN, f"model.path={tmp_path}"))
    assert [problem.id for problem in matching] == ["mindrlhf_generation.endoftext"]


def test_every_rule_has_a_case_a_source_and_a_sentence():
    tested = {*(case[0] for case in CASES), *NOT_INSTALLED, "mindrlhf_generation.endoftext"}
    assert tested == set(rows())
    assert [row.id for row in rows().values() if not (row.source and row.text)] == []
