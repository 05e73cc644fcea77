"""A package on PYTHONPATH, with its YAML, is a complete engine without other edits."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOY = Path(__file__).parents[1] / "data" / "toy_engine"


@pytest.fixture
def grpoflow(tmp_path):
    """Run a command with the toy engine; return the exit code, stdout and stderr."""

    def run(command, *arguments):
        typed = [command, "engine=toy", f"store={tmp_path / 'store'}", "layout=dp1_mp1_pp1", *arguments]
        typed += ["--config-dir", str(TOY / "conf")]
        path = os.pathsep.join([str(TOY), str(Path(__file__).parents[2])])
        line, environment = [sys.executable, "-m", "pipeline.cli", *typed], {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(line, env=environment, capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    return run


def test_plan_doctor_and_render_know_it(grpoflow):
    code, out, _ = grpoflow("plan", "--json")
    states = {stage["stage"]: stage["state"] for stage in json.loads(out)["stages"]}
    assert code == 10 and states["grpo"] == "RUN" and states["convert"] == states["export"] == "SKIPPED"
    code, _, err = grpoflow("plan", "engine.steps=10")
    assert code == 2 and "engine.steps=10" in err
    code, _, err = grpoflow("plan", "model=deepseek_v3")
    assert code == 2 and "engine=toy trains Qwen2 models" in err
    code, out, _ = grpoflow("run", "--render")
    assert code == 0 and "node_0.sh" in out
    _, out, _ = grpoflow("doctor", "--json")
    assert "toy" in json.loads(out)["verdicts"]


def test_it_trains_and_its_artifact_is_checked(grpoflow, tmp_path):
    code, out, err = grpoflow("run", "--only", "grpo", f"engine.python={sys.executable}")
    assert code == 0, err
    artifact = Path(out.split("grpo=")[1].strip())
    rows = [json.loads(line) for line in (artifact / "metrics.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in rows] == [0.1, 0.2]
    (artifact / "weights.bin").unlink()
    code, out, _ = grpoflow("verify")
    assert code == 1 and "weights.bin" in out


def test_its_failures_are_known_and_belong_to_the_last_attempt(grpoflow, tmp_path):
    code, _, err = grpoflow("run", "--only", "grpo", "engine.steps=7", f"engine.python={sys.executable}")
    assert code == 1 and "error: stage grpo failed: " in err
    assert "the toy engine ends at its fifth step" in err and "engine.steps=4" in err
    (configs,) = (tmp_path / "store" / ".work").glob("grpo-*/configs")
    shutil.rmtree(configs)
    configs.touch()  # so that the next attempt ends before it starts the program
    code, _, err = grpoflow("run", "--only", "grpo", "engine.steps=7", f"engine.python={sys.executable}")
    assert code == 1 and "configs" in err and "fifth step" not in err
