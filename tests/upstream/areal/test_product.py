"""engine=areal with the unmodified AReaL on a CPU: steps, staleness, kill and resume, fetch to report."""

import json
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from pipeline.config.load import load
from stages.engines.areal import files
from stages.engines.areal.job import PROGRAMS, Job, Paths
from stages.engines.upstream_keys import Schema
from tests.processes import living
from tests.upstream.areal.conftest import (
    GENERATIONS,
    LEARNING_RATE,
    MAX_TOKENS,
    PROMPTS,
    STEPS,
    metrics,
)
from tests.upstream.programs import ask, run
from tests.upstream.verl.product import command, grpoflow

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
ORACLE = Path(__file__).parent / "oracle.py"


def test_areal_has_every_key_that_is_rendered_and_refuses_others(interpreter):
    printed = run(interpreter("areal"), PROGRAMS / "grpoflow_areal" / "schema.py")
    schema = Schema.parse(printed[-1])
    for overrides in ((), ("engine.kl_in_reward=0.1", "rollout.top_p=0.9", "rollout.top_k=5")):
        config = load(["experiment=areal_7b", "model.path=/models/m", *overrides])
        rendered = files.configuration(Job.from_run(config), Paths(Path("/run"), Path("/data/train.jsonl")))
        problems = schema.problems("engine.upstream", rendered, "AReaL")
        assert [problem for problem in problems if "unknown" in problem.rule] == []
    (problem,) = schema.problems("engine.upstream", {"actor": {"eps_clp": 0.1}}, "AReaL")
    assert problem.remedy == "did you mean actor.eps_clip?"


@pytest.mark.parametrize(
    ("kl", "workers"), [pytest.param(0.0, 1, marks=pytest.mark.core), (0.1, 1), (0.0, 2)], ids=str
)
def test_gradient_norm_and_weights_equal_plain_torch(areal, tmp_path, kl, workers):
    more = (f"engine.kl_in_reward={kl}", f"layout=dp{workers}_mp1_pp1", "engine.rollout_cards=1")
    artifact = areal.train(tmp_path, *more)
    request = {"artifact": str(artifact), "model": str(areal.data / "model"), "kl_in_reward": kl}
    request |= {"learning_rate": LEARNING_RATE, "steps": STEPS, "max_tokens": MAX_TOKENS}
    expected = ask(areal.python, ORACLE, request)
    rows = metrics(artifact)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    for row, step in zip(rows, expected["steps"], strict=True):
        assert step["groups"] == [GENERATIONS] * PROMPTS
        assert row["grad_norm"] == pytest.approx(step["norm"], rel=1e-4)
        assert row["reward"] == pytest.approx(step["reward"], rel=1e-5)
        assert row["staleness_max"] == 0
    assert expected["difference"] < 5e-5 < 5e-3 < expected["moved"]


def test_completions_are_at_most_so_many_versions_old(areal, tmp_path):
    artifact = areal.train(tmp_path, "engine.mode=async", "engine.staleness=2", "train.steps=6")
    rows = metrics(artifact)
    assert len(rows) == 6
    assert max(row["staleness_max"] for row in rows) <= 2
    assert any(row["staleness_max"] > 0 for row in rows)  # otherwise it was not asynchronous


def test_a_killed_driver_leaves_nothing_and_the_run_resumes(areal, tmp_path):
    overrides = areal.overrides(tmp_path, "train.steps=4")
    with (tmp_path / "run.log").open("w") as log:
        running = subprocess.Popen(
            command("run", "--until", "grpo", *overrides), stdout=log, stderr=log, cwd=tmp_path
        )
    killed = False
    while running.poll() is None:
        for work in (tmp_path / "store" / ".work").glob("grpo-*"):
            state = work / "checkpoints" / "state.json"
            if not killed and state.is_file() and json.loads(state.read_text())["step"] >= 2:
                for pid in living(work):
                    process = psutil.Process(pid)
                    if "grpoflow_areal.driver" in process.cmdline():
                        process.kill()
                        killed = True
        time.sleep(0.2)
    assert killed and running.returncode == 1
    assert not any("areal" in " ".join(process.info["cmdline"] or ()) and str(tmp_path) in " ".join(
        process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))  # fmt: skip
    done = grpoflow(tmp_path, "run", "--until", "grpo", *overrides)
    assert done.returncode == 0, done.stderr[-3000:]
    (artifact,) = (tmp_path / "store" / "grpo").iterdir()
    assert [row["step"] for row in metrics(artifact)] == [1, 2, 3, 4]
    assert json.loads((artifact / "result.json").read_text())["resumed_from"] >= 2


def test_a_run_from_fetch_to_report(areal, tmp_path):
    words = ["engine=areal", "engine.device=cpu", f"engine.python={areal.python}", "model=tiny_qwen3"]
    words += [f"store={tmp_path / 'store'}", "train.steps=2", "train.prompts_per_step=4"]
    words += ["train.warmup_steps=0", "rollout.num_generations=4", "evaluate.num_prompts=32"]
    done = grpoflow(tmp_path, "run", *words, "evaluate.sample_prompts=0")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "result accuracy_sft=" in done.stdout
    verified = grpoflow(tmp_path, "verify", f"store={tmp_path / 'store'}")
    assert verified.returncode == 0
