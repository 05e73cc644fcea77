"""Defaults that depend on other keys, and the sections that model.path and dataset.path imply."""

import functools
import json

import pytest

from pipeline.config.load import derived_values, load

CASES = [
    ("train.steps=3", "train.warmup_steps", 3),
    ("train.steps=80", "train.warmup_steps", 5),
    ("sft.steps=4", "sft.warmup_steps", 4),
    ("evaluate.num_samples=4", "evaluate.k", 4),
    ("dataset.arith.min_addends=6", "dataset.arith.max_addends", 6),
    ("train.beta=0.1", "train.validate_every", 0),
    ("train.keep_best=true", "train.validate_every", 10),
    ("train.patience=2", "train.validate_every", 10),
    ("dataset.train_rows=100", "sft.check_prompts", 25),
    ("dataset.train_rows=288", "sft.check_prompts", 256),
    ("dataset.train_rows=287", "sft.check_prompts", 71),
    ("dataset=openr1_math tokenize.compat=mindrlhf", "tokenize.chat_template", False),
    ("dataset=openr1_math", "tokenize.chat_template", True),
    ("model=qwen2_5_32b", "model.rms_norm_eps", 1e-6),
    ("model=qwen2_5_32b model.variant=base", "model.rms_norm_eps", 1e-5),
    ("cards=1", "layout.train.model_parallel", 1),
    ("cards=3", "layout.train.data_parallel", 3),
    ("cards=4", "layout.train.data_parallel", 2),
    ("cards=4 layout.train.model_parallel=1", "layout.train.data_parallel", 4),
    ("experiment=mindrlhf_one_stage_7b cards=16", "layout.train.data_parallel", 2),
    ("layout.train.model_parallel=1", "layout.generate.data_parallel", 1),
    ("layout.train.data_parallel=2", "layout.generate.data_parallel", 4),
    ("layout.generate.model_parallel=2", "layout.generate.data_parallel", 1),
    ("experiment=mindrlhf_deepseek_v3", "layout.reference.data_parallel", 4),
]
"""Overrides, a key that they do not set, and its value."""


@pytest.mark.parametrize(("typed", "key", "value"), CASES)
def test_a_default_follows_from_further_keys(typed, key, value):
    assert functools.reduce(dict.__getitem__, key.split("."), derived_values(typed.split())) == value


def dataset_at(directory, *splits):
    for split in splits:
        rows = [json.dumps({"question": f"{i}?", "answer": f"#### {i}"}) for i in range(40)]
        (directory / f"{split}.jsonl").write_text("\n".join(rows))
    return directory


def test_a_path_is_sufficient_for_a_dataset(tmp_path):
    at = dataset_at(tmp_path, "train", "test")
    for path in (at, at / "train.jsonl"):
        dataset = load([f"dataset.path={path}"]).dataset
        assert (dataset.source, dataset.name, dataset.arith) == ("local", "local", None)
        assert (dataset.train_rows, dataset.test_rows) == (None, None)
    assert load([f"dataset.path={at}", "dataset.train_rows=35", "sft.batch_size=8"]).dataset.train_rows == 35


def test_files_at_a_hub_or_url_are_the_dataset():
    files = "dataset.files={train: {name: %s, sha256: null}, test: null}"
    hub = load(["dataset.hub={id: me/mine, revision: v1}", files % "x.jsonl"]).dataset
    assert (hub.source, hub.name) == ("modelscope", "custom")
    assert load([files % "'https://example.org/x.jsonl'"]).dataset.source == "url"
