"""Fingerprints of a plan: what a change of a file, a key or a code version reruns."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.plan.graph import plan
from stages.base.files import file_digest
from stages.catalog import GRPO
from tests.pipeline.plans import MINDSPEED_RL

AFTER_TRAINING = {"grpo", "evaluate", "export", "report"}
DATA = Path(__file__).parents[1] / "data"
MINDRLHF = ("engine=mindrlhf", "model.path=/models/qwen", "model=qwen2_5_7b", "layout=dp1_mp4_pp2")


def planned(*overrides):
    return plan(load(overrides), file_digest)


def keys(*overrides):
    return {spec.name: spec.key for spec in planned(*overrides).specs}


def changed(before, after):
    return {name for name in after if before.get(name) != after[name]}


def test_content_not_path_of_a_dataset_counts(tmp_path):
    base = ("dataset=gsm8k", "model.tokenizer_path=/nowhere")
    for path in ("a", "b"):
        (tmp_path / path).mkdir()
        for name in ("train", "test"):
            (tmp_path / path / f"{name}.jsonl").write_text('{"question": "1+1?", "answer": "#### 2"}\n')
    before = keys(*base, f"dataset.path={tmp_path / 'a'}")
    assert keys(*base, f"dataset.path={tmp_path / 'b'}") == before
    (tmp_path / "b/train.jsonl").write_text('{"question": "1+2?", "answer": "#### 2"}\n')
    after = keys(*base, f"dataset.path={tmp_path / 'b'}")
    assert changed(before, after) == set(before) - {"fetch", "convert", "strategy", "split"}


def test_the_files_of_a_users_reward_are_fingerprinted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module, sibling = tmp_path / "mine.py", tmp_path / "beside.py"
    module.write_text("import beside\n\ndef f(completions, solutions):\n    return [0.0]\n")
    sibling.write_text("A = 1\n")
    overrides = ("reward.functions=[mine:f]", "reward.weights=[1.0]")
    before = keys(*overrides)
    for file, text in ((sibling, "A = 2\n"), (module, "import beside\nf = beside.A\n")):
        file.write_text(text)
        after = keys(*overrides)
        assert changed(before, after) == AFTER_TRAINING
        before = after
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    for file in (module, sibling):
        file.rename(elsewhere / file.name)
    assert keys(*overrides) == before
    with pytest.raises(ConfigError, match="module nosuch not found"):
        planned("reward.functions=[nosuch:f]", "reward.weights=[1.0]")


def test_examples_for_sft_rerun_tokenize_and_everything_downstream(tmp_path):
    file = tmp_path / "own.json"
    file.write_text("[1]")
    before = keys(f"sft_data.path={file}")
    assert changed(keys(), before) == {"tokenize", "sft", *AFTER_TRAINING}
    assert keys("sft_data.kind=conversations") == keys()
    (tmp_path / "elsewhere").mkdir()
    moved = file.rename(tmp_path / "elsewhere" / file.name)
    assert keys(f"sft_data.path={moved}")["tokenize"] == before["tokenize"]
    moved.write_text("[2]")
    assert keys(f"sft_data.path={moved}")["tokenize"] != before["tokenize"]


def test_a_change_of_the_local_trainer_reruns_no_outside_program(monkeypatch):
    runs = [("layout=dp1_mp2_pp1",), ("engine=mindrlhf", "layout=dp1_mp2_pp1")]
    before = [keys(*run) for run in runs]
    monkeypatch.setattr("stages.engines.local.GRPO", replace(GRPO, version=1000))
    after = [keys(*run) for run in runs]
    assert changed(before[0], after[0]) == AFTER_TRAINING and after[1] == before[1]


def test_a_changed_template_of_mindspeed_rl_reruns_tokenize(tmp_path):
    home = Path(shutil.copytree(DATA / "mindspeed_rl_standin/head", tmp_path / "home"))
    standin = keys(*MINDSPEED_RL, f"engine.mindspeed_rl_home={DATA / 'mindspeed_rl_standin/head'}")
    moved = keys(*MINDSPEED_RL, f"engine.mindspeed_rl_home={home}")
    assert moved == standin
    file = home / "configs/model/templates.json"
    file.write_text(file.read_text().replace("Think first", "Think hard"))
    after = keys(*MINDSPEED_RL, f"engine.mindspeed_rl_home={home}")
    assert after["tokenize"] != moved["tokenize"] and after["convert"] == moved["convert"]


def test_upstreams_keys_rerun_the_stages_whose_program_reads_them():
    key = "+engine.upstream.grpo_config.profiler_config"
    assert changed(keys(*MINDRLHF), keys(*MINDRLHF, f"{key}.profile=true")) == AFTER_TRAINING
    assert keys(*MINDRLHF, "engine.upstream={}") == keys(*MINDRLHF)
    after = keys(*MINDSPEED_RL, "+engine.upstream.rl_config.lam=0.9")
    assert changed(keys(*MINDSPEED_RL), after) == AFTER_TRAINING


def test_upstreams_keys_of_mindformers_belong_to_its_section():
    key = "upstream.train.runner_config.stop_step=3"
    for base in (MINDRLHF, ("model=qwen2_5_0_5b", "layout=dp2_mp1_pp1")):
        config = load([*base, "engine.sft=mindformers", f"+engine.{key}"])
        assert config.mindformers.upstream == {"train": {"runner_config": {"stop_step": 3}}}
        assert config == load([*base, "engine.sft=mindformers", f"+mindformers.{key}"])
