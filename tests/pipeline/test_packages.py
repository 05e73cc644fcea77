"""Where packages of an extra are missing, plan refuses or leaves a stage out before anything starts."""

import functools

import pytest

from launch.machine import environment
from pipeline.cli import main
from pipeline.plan import graph
from pipeline.run.run import prepare_plan
from tests.pipeline.artifacts import commit_spec

REMEDY = "-m pip install 'grpoflow[local]'"
VERSIONS = {"numpy": "2.4.1", "safetensors": "0.7.0"}


@pytest.fixture
def no_mindspore(monkeypatch):
    checks = functools.partial(environment.package_checks, installed=VERSIONS.get)
    monkeypatch.setattr(environment, "package_checks", checks)
    monkeypatch.setattr(graph, "is_present", lambda package: package != "mindspore")


def test_engine_local_is_refused_before_anything_starts(no_mindspore, tmp_path, capsys):
    for command in ("plan", "run"):
        assert main([command, f"store={tmp_path / command}"]) == 2
        message = capsys.readouterr().err
        assert "mindspore: not installed, and needed by sft, grpo, evaluate" in message and REMEDY in message
        assert not (tmp_path / command).exists()
    assert main(["plan", f"store={tmp_path}", "--until", "split"]) == 10


def test_finished_stages_need_no_packages(no_mindspore, tmp_path, capsys):
    planned, store = prepare_plan([f"store={tmp_path}"])
    for spec in planned.specs:
        commit_spec(store, spec, {})
    assert main(["plan", f"store={tmp_path}"]) == 0


@pytest.mark.parametrize("experiment", ["verl_7b", "mindrlhf_7b", "mindspeed_rl_7b"])
def test_an_outside_engine_leaves_evaluate_out(no_mindspore, tmp_path, capsys, experiment):
    overrides = [f"experiment={experiment}", "dataset=arith", f"store={tmp_path}"]
    assert main(["plan", *overrides]) == 10
    lines = capsys.readouterr().out.splitlines()
    (line,) = (line for line in lines if "SKIPPED" in line and "evaluate" in line)
    assert "mindspore is not installed" in line
    assert main(["plan", *overrides, "--only", "evaluate"]) == 2
    assert REMEDY in capsys.readouterr().err.replace("\n", " ")
