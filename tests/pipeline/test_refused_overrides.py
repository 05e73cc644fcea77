"""Overrides that no key takes: labels of chosen groups, groups without a choice, and values of any kind."""

import contextlib
import dataclasses
import json
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.cli import main
from pipeline.config.compose import compose
from pipeline.config.load import load
from pipeline.config.plain import flat
from pipeline.config.refused import LABELS
from pipeline.config.sections import Config
from pipeline.errors import ConfigError
from stages.base.identity import field_types

GROUPS = [
    "model", "layout", "dataset", "fetch", "tokenize", "convert", "split", "reward", "rollout", "sft",
    "sft_data",
    "train", "evaluate", "export", "report", "launcher", "engine", "mindformers", "remote",
]  # fmt: skip


def label_fields():
    """Every section's field `name`, which tells the choice of its group."""
    for section, hint in field_types(Config).items():
        options = [option for option in (hint, *typing.get_args(hint)) if dataclasses.is_dataclass(option)]
        if any("name" in field_types(option) for option in options):
            yield f"{section}.name"


def test_every_label_is_known():
    assert set(LABELS) == set(label_fields())


@pytest.mark.parametrize("label", list(label_fields()))
@pytest.mark.parametrize("form", ["{}={}", "++{}={}", "+{}={}"])
def test_a_label_is_refused_with_the_choice_that_was_meant(label, form):
    group = label.partition(".")[0]
    for value in ("qwen2_5_7b", "mindrlhf", "'mine and yours'", "null", "${seed}", "1"):
        with pytest.raises(ConfigError) as refused:
            load([form.format(label, value)])
        (problem,) = refused.value.problems
        assert problem.path == label and str(problem).startswith(f"{label}={value.strip(chr(39))}: ")
        assert f"use {group}=" in problem.remedy
    for typed in (f"~{label}", f"~{label}=tiny"):
        with pytest.raises(ConfigError, match=label):
            load([typed])


def test_labels_are_refused_wherever_overrides_come_from(tmp_path, capsys):
    file, store = tmp_path / "my.yaml", f"store={tmp_path / 'store'}"
    file.write_text("model:\n  name: qwen2_5_7b\n")
    ways = [
        ["plan", "--config", str(file)], ["run", "model.name=qwen2_5_7b"], ["sweep", "model.name=qwen2_5_7b"],
        ["sweep", "--plan", "model.name=qwen2_5_7b,tiny"], ["sweep", "--config", str(file)],
        ["layouts", "model.name=qwen2_5_7b"], ["config", "model.name=qwen2_5_7b"],
        ["doctor", "model.name=qwen2_5_7b"],
        ["probe", "model.name=qwen2_5_7b"], ["rehearse", "model.name=qwen2_5_7b"],
    ]  # fmt: skip
    for way in ways:
        assert main([*way, store]) == 2, way
        assert "use model=qwen2_5_7b" in capsys.readouterr().err
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("overrides", [[], ["layout=dp2_mp1_pp1"], ["layout.train.model_parallel=1"]])
def test_a_file_may_state_the_right_labels(overrides, tmp_path, capsys):
    assert main(["config", *overrides]) == 0
    (tmp_path / "my.yaml").write_text(capsys.readouterr().out)
    assert main(["config", "--json", "--config", str(tmp_path / "my.yaml")]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(load(overrides).plain()))


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("value", ["null", "[]", "''", "5", "true", "nosuch", "[nosuch,tiny]"])
def test_a_group_takes_the_name_of_a_choice_only(group, value):
    if (group, value) == ("remote", "''"):
        return
    for form in ("{}={}", "+{}={}", "++{}={}"):
        with pytest.raises(ConfigError) as refused:
            load([form.format(group, value)])
        assert group in str(refused.value)
        with pytest.raises(ConfigError):
            compose([form.format(group, value)])
    with pytest.raises(ConfigError, match=group):
        load([f"~{group}"])


KEYS = sorted(flat(load([]).plain()))
WRONG = [
    "null",
    "[]",
    "{}",
    "''",
    "-1",
    "0",
    "nan",
    "inf",
    "1e999",
    "true",
    "x",
    "[[1]]",
    "{a:{b:1}}",
    "'\x1b'",
]


@given(st.sampled_from(KEYS), st.sampled_from(WRONG), st.sampled_from(["", "+", "++"]))
def test_any_value_is_accepted_or_refused_in_words(key, value, sign):
    accepted_or_refused([f"{sign}{key}={value}"])


@given(st.lists(st.text(st.sampled_from("ab.=,[]{}'\"\\$~+@:/ \n\tü1"), max_size=12), max_size=2))
def test_any_words_are_accepted_or_refused_in_words(words):
    accepted_or_refused([f"{word}=" if "=" not in word else word for word in words])


def accepted_or_refused(overrides):
    try:
        load(overrides)
    except ConfigError as error:
        assert error.problems
    with contextlib.suppress(ConfigError):
        compose(overrides)


@pytest.mark.parametrize("levels", [51, 300, 3000])
@pytest.mark.parametrize("value", [lambda n: "[" * n + "]" * n, lambda n: "{a:" * n + "1" + "}" * n])
def test_a_value_nested_too_deeply_is_refused(levels, value):
    with pytest.raises(ConfigError, match="seed: has more than 50 levels"):
        load([f"seed={value(levels)}"])
