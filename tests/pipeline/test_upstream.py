"""engine.upstream in plans: fingerprints, notes and refusals."""

from pathlib import Path

from pipeline.config.load import load
from pipeline.plan.graph import plan

MODEL = ("model.path=/models/qwen", "model=qwen2_5_7b")
MINDSPEED_RL = ("engine=mindspeed_rl", *MODEL, "layout=dp2_mp2_pp2")
RUN = ("engine=mindrlhf", *MODEL, "layout=dp1_mp4_pp2")
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


def test_keys_of_mindformers_belong_to_its_section():
    key = "upstream.train.runner_config.stop_step=3"
    config = load([*RUN, "engine.sft=mindformers", f"+engine.{key}"])
    assert config.mindformers.upstream == {"train": {"runner_config": {"stop_step": 3}}}
    assert config.engine.upstream == {}
    assert config == load([*RUN, "engine.sft=mindformers", f"+mindformers.{key}"])
    local = load(["model=qwen2_5_0_5b", "layout=dp2_mp1_pp1", "engine.sft=mindformers", f"+engine.{key}"])
    assert local.mindformers.upstream == config.mindformers.upstream
