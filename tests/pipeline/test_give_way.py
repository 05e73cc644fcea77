"""A default gives way to what is typed; what is typed does not."""

import json

import pytest

from pipeline.cli import main
from pipeline.config.load import load, load_noted
from pipeline.errors import ConfigError
from stages.base.rules import value_at

WAYS = [
    ("train.steps=3", "train.warmup_steps", 3),
    ("sft.steps=4", "sft.warmup_steps", 4),
    ("evaluate.num_samples=4", "evaluate.k", 4),
    ("evaluate.k=16", "evaluate.num_samples", 16),
    ("dataset.arith.min_addends=6", "dataset.arith.max_addends", 6),
    ("train.keep_best=true", "train.validate_every", 10),
    ("train.patience=2", "train.validate_every", 10),
    ("dataset.train_rows=100", "sft.check_prompts", 25),
    ("tokenize.compat=mindrlhf", "tokenize.chat_template", False),
    ("cards=1", "layout.train.model_parallel", 1),
    ("cards=4", "layout.train.data_parallel", 2),
    ("layout.train.model_parallel=1", "layout.generate.data_parallel", 1),
    ("layout.train.data_parallel=2", "layout.generate.data_parallel", 2),
    ("layout.generate.model_parallel=2", "layout.generate.data_parallel", 1),
]
"""What is typed, what gives way to it, and what it becomes."""


@pytest.mark.parametrize(("typed", "key", "value"), WAYS)
def test_a_default_gives_way_and_says_so(typed, key, value):
    base = ["dataset=openr1_math"] if typed.startswith("tokenize") else []
    config, notes = load_noted([*base, typed])
    assert value_at(config, key) == value
    (note,) = (note for note in notes if note.startswith(f"{key}="))
    assert f"gives way to {typed}: " in note


@pytest.mark.parametrize(
    "typed",
    [
        "train.steps=3 train.warmup_steps=5",
        "evaluate.k=8 evaluate.num_samples=4",
        "dataset.arith.min_addends=6 dataset.arith.max_addends=5",
        "train.keep_best=true train.validate_every=0",
        "dataset.train_rows=100 sft.check_prompts=90",
        "dataset=openr1_math tokenize.compat=mindrlhf tokenize.chat_template=true",
        "cards=4 layout=dp1_mp2_pp1",
        "cards=4 layout.train.model_parallel=2",
        "layout.train.model_parallel=1 layout.generate.data_parallel=2",
    ],
)
def test_what_is_typed_contradicts(typed):
    with pytest.raises(ConfigError):
        load(typed.split())


@pytest.mark.parametrize(
    "typed", ["train.steps=x", "cards=x", "evaluate.k=null", "layout.train.data_parallel=[]"]
)
def test_values_of_a_wrong_type_are_told_as_such(typed):
    with pytest.raises(ConfigError, match=f"{typed.partition('=')[0]}.*must be"):
        load([typed])


def test_nothing_gives_way_where_nothing_contradicts():
    for typed in ([], ["train.steps=80"], ["cards=2"], ["layout=dp4_mp1_pp1"], ["experiment=mindrlhf_7b"]):
        assert load_noted(typed)[1] == ()


def test_the_plan_tells_it(tmp_path, capsys):
    assert main(["plan", "--json", "train.steps=3", f"store={tmp_path}"]) == 10
    told = "train.warmup_steps=5 gives way to train.steps=3: 3 is taken"
    assert told in json.loads(capsys.readouterr().out)["notes"]
