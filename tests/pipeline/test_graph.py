"""Fingerprints of a plan: what a change of a file, a key or a code version reruns."""

import shutil
from pathlib import Path

import pytest

from pipeline.config.load import load
from pipeline.errors import ConfigError
from tests.pipeline.plans import MINDSPEED_RL, planned

AFTER_TRAINING = {"grpo", "evaluate", "export", "report"}
STANDIN = Path(__file__).parents[1] / "data/mindspeed_rl_standin/checkout"
MINDRLHF = ("engine=mindrlhf", "model.path=/models/qwen", "model=qwen2_5_7b", "layout=dp1_mp4_pp2")


def keys(*overrides):
    return {spec.name: spec.key for spec in planned(*overrides).specs}


def changed(before, after):
    return {name for name in after if before.get(name) != after[name]}


ROW = '{"question": "1+1?", "answer": "#### 2"}\n'
TEMPLATES = "configs/model/templates.json"
USERS_FILES = {
    "dataset": (
        {"train.jsonl": ROW, "test.jsonl": ROW}, ["train.jsonl"],
        ("dataset=gsm8k", "dataset.path={}", "model.tokenizer_path=/nowhere"),
        {"fetch_dataset", "tokenize", "sft", *AFTER_TRAINING},
    ),
    "examples for sft": (
        {"own.json": "[1]"}, ["own.json"], ("sft_data.path={}/own.json",),
        {"tokenize", "sft", *AFTER_TRAINING},
    ),
    "reward": (
        {"mine.py": "import beside\n\ndef f(c, s):\n    return [0.0]\n", "beside.py": "A = 1\n"},
        ["beside.py", "mine.py"], ("reward.functions=[mine:f]", "reward.weights=[1.0]"), AFTER_TRAINING,
    ),
    "template of mindspeed_rl": (
        {TEMPLATES: (STANDIN / TEMPLATES).read_text()}, [TEMPLATES],
        (*MINDSPEED_RL, "engine.mindspeed_rl_home={}"), {"tokenize", *AFTER_TRAINING},
    ),
}  # fmt: skip
"""Kind -> files, those that change, overrides, stages that a change reruns."""


@pytest.mark.parametrize("kind", USERS_FILES)
def test_the_content_and_not_the_path_of_a_users_file_counts(kind, tmp_path, monkeypatch):
    files, changing, overrides, reruns = USERS_FILES[kind]

    def keys_in(directory):
        monkeypatch.chdir(directory)
        return keys(*(override.format(directory) for override in overrides))

    for directory in (tmp_path / "here", tmp_path / "elsewhere"):
        shutil.copytree(STANDIN, directory) if "mindspeed_rl" in kind else directory.mkdir()
        for name, text in files.items():
            (directory / name).write_text(text)
    before = keys_in(tmp_path / "here")
    assert keys_in(tmp_path / "elsewhere") == before
    for name in changing:
        (directory / name).write_text(files[name] + "\n")
        after = keys_in(directory)
        assert changed(before, after) == reruns
        before = after


def test_settings_of_unused_files_do_not_count_and_absent_rewards_are_refused():
    assert keys("sft_data.kind=conversations") == keys()
    with pytest.raises(ConfigError, match="module nosuch not found"):
        planned("reward.functions=[nosuch:f]", "reward.weights=[1.0]")


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
