"""engine.upstream in plans: fingerprints, notes and refusals."""

from pathlib import Path

import pytest

from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.plan.graph import plan

MODEL = ("model.path=/models/qwen", "model=qwen2_5_7b")
RUN = ("engine=mindrlhf", *MODEL, "layout=dp1_mp4_pp2")
MINDSPEED_RL = ("engine=mindspeed_rl", *MODEL, "layout=dp2_mp2_pp2")
KEY = "+engine.upstream.grpo_config.profiler_config"


def digest(path: Path) -> str:
    return "0" * 64


def fingerprints(*overrides, run=RUN):
    return {spec.name: spec.key.fingerprint for spec in plan(load([*run, *overrides]), digest).specs}


def changed(*overrides, run=RUN):
    before, after = fingerprints(run=run), fingerprints(*overrides, run=run)
    return {name for name in before if before[name] != after[name]}


def test_keys_are_part_of_the_fingerprint_of_the_stages_whose_program_reads_them():
    assert changed(f"{KEY}.profile=true") == {"grpo", "evaluate", "export", "report"}
    assert fingerprints(f"{KEY}.profile=true") != fingerprints(f"{KEY}.mstx=true")
    assert changed("engine.upstream={}") == set()
    after_training = {"grpo", "export", "evaluate", "report"}
    assert changed("+engine.upstream.rl_config.lam=0.9", run=MINDSPEED_RL) == after_training


def test_keys_of_checkpoints_have_a_note():
    overrides = [*MINDSPEED_RL, "+engine.upstream.megatron_training.expert_model_parallel_size=2"]
    assert any("changes Megatron's checkpoints" in note for note in plan(load(overrides), digest).notes)


def test_keys_of_mindformers_belong_to_its_section():
    key = "upstream.train.runner_config.stop_step=3"
    config = load([*RUN, "engine.sft=mindformers", f"+engine.{key}"])
    assert config.mindformers.upstream == {"train": {"runner_config": {"stop_step": 3}}}
    assert config.engine.upstream == {}
    assert config == load([*RUN, "engine.sft=mindformers", f"+mindformers.{key}"])
    local = load(["model=qwen2_5_0_5b", "layout=dp2_mp1_pp1", "engine.sft=mindformers", f"+engine.{key}"])
    assert local.mindformers.upstream == config.mindformers.upstream


def test_all_refused_keys_are_reported_at_once():
    faults = {
        f"{KEY}.profiled": "1",
        f"{KEY}.profile": "1",
        "+engine.upstream.grpo_config.rl_config.beta": "1",
    }
    with pytest.raises(ConfigError) as error:
        load([*RUN, *(f"{key}={value}" for key, value in faults.items())])
    assert {problem.path for problem in error.value.problems} == {key.lstrip("+") for key in faults}
