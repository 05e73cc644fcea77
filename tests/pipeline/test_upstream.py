"""engine.upstream in plans: fingerprints, notes and refusals."""

from pathlib import Path

import pytest

from pipeline.config.load import load
from pipeline.errors import ConfigError
from pipeline.plan.graph import plan

RUN = ("engine=mindrlhf", "model.path=/models/qwen", "model=qwen2_5_7b", "layout=dp1_mp4_pp2")
KEY = "+engine.upstream.grpo_config.profiler_config"


def digest(path: Path) -> str:
    return "0" * 64


def fingerprints(*overrides):
    return {spec.name: spec.key.fingerprint for spec in plan(load([*RUN, *overrides]), digest).specs}


def test_keys_are_part_of_the_fingerprint_of_the_stages_whose_program_reads_them():
    without, added, other = (
        fingerprints(),
        fingerprints(f"{KEY}.profile=true"),
        fingerprints(f"{KEY}.mstx=true"),
    )
    different = {name for name in without if without[name] != added[name]}
    assert different == {"grpo", "evaluate", "export", "report"}
    assert added["grpo"] != other["grpo"]
    assert fingerprints("engine.upstream={}") == without


def test_the_plan_shows_the_keys():
    notes = plan(load([*RUN, f"{KEY}.profile=true", f"{KEY}.stage=actor"]), digest).notes
    text = 'grpo_config.profiler_config.profile=true, grpo_config.profiler_config.stage="actor"'
    assert any(note.startswith(f"engine.upstream sets {text}: ") for note in notes)


def test_all_refused_keys_are_reported_at_once():
    faults = {
        f"{KEY}.profiled": "1",
        f"{KEY}.profile": "1",
        "+engine.upstream.grpo_config.rl_config.beta": "1",
    }
    with pytest.raises(ConfigError) as error:
        load([*RUN, *(f"{key}={value}" for key, value in faults.items())])
    assert {problem.path for problem in error.value.problems} == {key.lstrip("+") for key in faults}


def test_a_value_must_be_finite():
    with pytest.raises(ConfigError, match=r"engine\.upstream\.grpo_config\.x\[1\]=nan: must be finite"):
        load([*RUN, "+engine.upstream.grpo_config.x=[1,nan]"])
