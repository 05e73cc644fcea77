"""Artifacts and exit codes of stages."""

import json

import pytest

from pipeline.config.load import load
from pipeline.plan.graph import plan
from pipeline.store.durable import missing_file
from stages import __main__
from stages.catalog import STAGES

ENGINES = {
    "local": [],
    "sft off": ["sft.enabled=false", "layout=dp2_mp1_pp1"],
    "mindformers": ["engine.sft=mindformers", "layout=dp1_mp1_pp1"],
    "mindrlhf": ["experiment=mindrlhf_7b", "model.path=/nowhere", "dataset.path=/nowhere"],
    "one stage": ["experiment=mindrlhf_one_stage_7b", "model.path=/nowhere"],
    "mindspeed_rl": ["experiment=mindspeed_rl_7b", "model.path=/nowhere", "dataset.path=/nowhere"],
}


def specs(*overrides):
    return plan(load(overrides), lambda path: "").specs


@pytest.mark.parametrize("overrides", ENGINES.values(), ids=ENGINES)
def test_every_stage_of_every_engine_declares_required_files(overrides):
    for spec in specs(*overrides):
        assert spec.name in STAGES
        assert missing(spec, {"tensorboard/events": 5}) is not None


def missing(spec, sizes):
    return missing_file(spec.required, {name: {"size": size} for name, size in sizes.items()})


def test_each_rank_must_have_files_that_are_not_empty():
    (grpo,) = (spec for spec in specs() if spec.name == "grpo")
    rank = "train/rank_{}/model.safetensors"
    files = {"result.json": 9, "metrics.jsonl": 0, "completions.jsonl": 0, rank.format(0): 9}
    assert missing(grpo, files) == "train/rank_1/*"
    assert missing(grpo, {**files, rank.format(1): 0}) == "train/rank_1/*"
    files[rank.format(1)] = 9
    assert missing(grpo, files) is None
    assert missing(grpo, {**files, "result.json": 0}) == "result.json"


@pytest.mark.parametrize(
    ("overrides", "file"),
    [
        (ENGINES["mindspeed_rl"], "mcore/*"),
        (["engine=verl", "model=qwen2_5_7b"], "actor/huggingface/config.json"),
    ],
)
def test_an_engine_s_stage_requires_its_own_files(overrides, file):
    (grpo,) = (spec for spec in specs(*overrides) if spec.name == "grpo")
    assert missing(grpo, {"result.json": 9}) == file


@pytest.mark.parametrize("code", [None, 0, 3])
def test_a_stage_that_calls_sys_exit_has_failed(code, tmp_path, monkeypatch):
    def leave(context):
        raise SystemExit(code)

    values = {"stage": "grpo", "config": {}, "inputs": {}, "output": "o", "work": "w", "progress_file": "p"}
    (tmp_path / "spec.json").write_text(json.dumps(values))
    monkeypatch.setattr(__main__, "entry", lambda name: leave)
    assert __main__.main(["grpo", str(tmp_path / "spec.json")]) == 1
