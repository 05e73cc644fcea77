"""An installed package with an entry point, and its YAML, is a complete engine without other edits."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stages import engines

TOY = Path(__file__).parents[1] / "data" / "toy_engine"


@pytest.fixture
def grpoflow(tmp_path):
    """Run a command with the toy engine to an exit code; return stdout and stderr."""

    def run(command, *arguments, code=0):
        typed = [command, "engine=toy", f"store={tmp_path / 'store'}", "layout=dp1_mp1_pp1", *arguments]
        typed += ["--config-dir", str(TOY / "conf")]
        path = os.pathsep.join([str(TOY), str(Path(__file__).parents[2])])
        line, environment = [sys.executable, "-m", "pipeline.cli", *typed], {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(line, env=environment, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    return run


def test_plan_doctor_and_render_know_it(grpoflow):
    planned = json.loads(grpoflow("plan", "--json", code=10)[0])
    states = {stage["stage"]: stage["state"] for stage in planned["stages"]}
    assert states["grpo"] == "RUN" and states["convert"] == states["export"] == "SKIPPED"
    assert "engine.steps=10" in grpoflow("plan", "engine.steps=10", code=2)[1]
    assert "engine=toy trains Qwen2 models" in grpoflow("plan", "model=deepseek_v3", code=2)[1]
    assert "node_0.sh" in grpoflow("run", "--render")[0]
    assert "toy" in json.loads(grpoflow("doctor", "--json", code=1)[0])["verdicts"]


def test_it_trains_and_its_artifact_is_checked(grpoflow, tmp_path):
    out, err = grpoflow("run", "--only", "grpo", f"engine.python={sys.executable}")
    assert "start.log: a line is malformed and left out: 'step by step' (ValueError: " in err
    artifact = Path(out.split("grpo=")[1].strip())
    rows = [json.loads(line) for line in (artifact / "metrics.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in rows] == [0.1, 0.2]
    (artifact / "weights.bin").unlink()
    assert "weights.bin" in grpoflow("verify", code=1)[0]


def test_its_failures_are_known_and_belong_to_the_last_attempt(grpoflow, tmp_path):
    seven = ["run", "--only", "grpo", "engine.steps=7", f"engine.python={sys.executable}"]
    _, err = grpoflow(*seven, code=1)
    assert "error: stage grpo failed: " in err
    assert "the toy engine ends at its fifth step" in err and "engine.steps=4" in err
    (configs,) = (tmp_path / "store" / ".work").glob("grpo-*/configs")
    shutil.rmtree(configs)
    configs.touch()  # so that the next attempt ends before it starts the program
    _, err = grpoflow(*seven, code=1)
    assert "configs" in err and "fifth step" not in err


@pytest.mark.parametrize("name", engines.PACKAGES)
def test_settings_that_are_read_without_the_engine_are_its_own(name):
    assert engines.get(name).settings is importlib.import_module(f"stages.engines.{name}.config").SETTINGS
