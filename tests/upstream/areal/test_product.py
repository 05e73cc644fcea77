"""engine=areal with the unmodified AReaL on a CPU: steps, staleness, kill and resume, fetch to report."""

import contextlib
import json
import subprocess
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

from pipeline.config.load import load
from stages.engines.areal import files
from stages.engines.areal.job import PROGRAMS, Job, Paths
from stages.engines.upstream_keys import Schema
from tests.processes import living
from tests.upstream.areal.conftest import GENERATIONS, PROMPTS, STEPS, metrics
from tests.upstream.programs import run
from tests.upstream.verl.product import command, grpoflow

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
ASCEND = "areal-2262610b8"
"""Checkout of the branch ascend-v1.0.5."""


@pytest.mark.parametrize("source", [None, ASCEND])
def test_areal_has_every_key_that_is_rendered_and_refuses_others(interpreter, checkout, source):
    homes = () if source is None else (checkout(source),)
    printed = run(interpreter("areal"), PROGRAMS / "grpoflow_areal" / "schema.py", *homes)
    schema = Schema.parse(printed[-1])
    for overrides in ((), ("engine.kl_in_reward=0.1", "rollout.top_p=0.9", "rollout.top_k=5")):
        config = load(["experiment=areal_7b", "model.path=/models/m", *overrides])
        rendered = files.configuration(Job.from_run(config), Paths(Path("/run"), Path("/data/train.jsonl")))
        problems = schema.problems("engine.upstream", rendered, "AReaL")
        assert [problem for problem in problems if "unknown" in problem.rule] == []
    (problem,) = schema.problems("engine.upstream", {"actor": {"eps_clp": 0.1}}, "AReaL")
    assert problem.remedy == "did you mean actor.eps_clip?"


def server_log(directory):
    """Return the override by which the server logs what it does, and the log's file."""
    file = directory / "server.jsonl"
    return f"+engine.env.GRPOFLOW_AREAL_SERVER_LOG={file}", file


def trainer_record(directory):
    """Return the overrides by which the trainer's weights are recorded at each update, and the record."""
    file = directory / "trainer.txt"
    words = {"PYTHONPATH": Path(__file__).with_name("recorded"), "GRPOFLOW_TEST_RECORD": file}
    return [f"+engine.env.{name}={value}" for name, value in words.items()], file


def events(file, kind):
    """Return the events of one kind in the server's log."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    return [row for row in rows if row["event"] == kind]


@pytest.mark.parametrize(
    ("kl", "workers"), [pytest.param(0.0, 1, marks=pytest.mark.core), (0.1, 1), (0.0, 2)], ids=str
)
def test_gradient_norm_and_weights_equal_plain_torch(areal, tmp_path, kl, workers):
    logged, log = server_log(tmp_path)
    recorded, record = trainer_record(tmp_path)
    more = (f"engine.kl_in_reward={kl}", f"layout=dp{workers}_mp1_pp1", "engine.rollout_cards=1")
    artifact = areal.train(tmp_path, *more, logged, *recorded)
    expected = areal.equals_torch(artifact, kl_in_reward=kl)
    assert all(step["groups"] == [GENERATIONS] * PROMPTS for step in expected["steps"])
    assert all(step["ages"] == {"0": step["tokens"]} for step in expected["steps"])
    loads = [event["digest"] for event in events(log, "load")]
    assert len(loads) == 1 + STEPS == len(set(loads))
    assert [loads[0], loads[-1]] == areal.digests(areal.data / "model", artifact / "model")
    assert loads[1:] == record.read_text().split()


@pytest.mark.parametrize(("kl", "workers"), [(0.0, 1), (0.1, 2)], ids=str)
def test_the_branch_for_ascend_trains_alike(areal, checkout, tmp_path, kl, workers):
    words = (f"engine.areal_home={checkout(ASCEND)}", f"engine.kl_in_reward={kl}")
    artifact = areal.train(tmp_path, *words, f"layout=dp{workers}_mp1_pp1", "engine.rollout_cards=1")
    areal.equals_torch(artifact, kl_in_reward=kl)
    assert json.loads((artifact / "result.json").read_text())["contract"] == "ascend-v1.0.5"


LONG = ("rollout.max_tokens=48", "tokenize.max_prompt_length=8")
"""Completions that take seconds."""


@pytest.mark.parametrize("staleness", [0, 1, 2])
def test_completions_are_at_most_so_many_versions_old(areal, tmp_path, staleness):
    """AReaL sends a batch ahead only after it has waited a second for one (infra/workflow_executor.py)."""
    mode = ("engine.mode=async", f"engine.staleness={staleness}", *LONG)
    artifact = areal.train(tmp_path, *mode, "train.steps=4")
    expected = areal.equals_torch(artifact, steps=4, max_tokens=48)
    ages = Counter()
    for step in expected["steps"]:
        ages.update(step["ages"])
    assert set(ages) == {str(age) for age in range(staleness + 1)}
    assert all(0 < row["wait_share"] < 1 and row["tokens_per_s"] > 0 for row in metrics(artifact))


def test_an_interrupted_completion_goes_on_with_the_new_weights(areal, tmp_path):
    """Generation takes longer than training, so that updates interrupt completions.

    They are those of the fourth step and later ones: staleness lets the first three begin at once.
    """
    logged, log = server_log(tmp_path)
    mode = ("engine.mode=async", "engine.staleness=2", "rollout.correction=tis")
    artifact = areal.train(tmp_path, *mode, *LONG, logged, "train.steps=5")
    # the ratios of the loss are to the weights that generated each token
    expected = areal.equals_torch(artifact, correction=2.0, max_tokens=48, steps=5)
    assert max(step["largest_ratio"] for step in expected["steps"]) > 1.1
    aborted = [event for event in events(log, "generate") if event["reason"] == "abort"]
    assert any(event["tokens"] for event in aborted)
    rows = [json.loads(line) for line in (artifact / "completions.jsonl").read_text().splitlines()]
    mixed = [row["versions"] for row in rows if len(row["versions"]) > 1]
    assert mixed and all(versions == sorted(versions) for versions in mixed)


def kill(running, directory, victim, is_due):
    """Kill (SIGKILL) the process of a run whose command line has the words `victim`, as soon as it is due."""
    while running.poll() is None:
        for work in (directory / "store" / ".work").glob("grpo-*"):
            if is_due(work / "checkpoints"):
                for pid in living(work):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process = psutil.Process(pid)
                        if set(victim) <= set(process.cmdline()):
                            process.kill()
                            return True
        time.sleep(0.05)
    return False


def one_step(checkpoints):
    return (checkpoints / "state.json").is_file()


def second_being_written(checkpoints):
    return one_step(checkpoints) and (checkpoints / "b").is_dir()


@pytest.mark.parametrize(
    ("victim", "is_due"),
    [
        (("grpoflow_areal.driver",), second_being_written),
        (("grpoflow_areal.worker", "actor"), one_step),
        (("grpoflow_areal.cpu_server",), one_step),
    ],
    ids=["driver", "worker", "server"],
)
def test_a_killed_process_ends_the_run_and_the_same_command_resumes(areal, tmp_path, victim, is_due):
    overrides = areal.overrides(tmp_path, "train.steps=4")
    with (tmp_path / "run.log").open("w") as log:
        running = subprocess.Popen(
            command("run", "--until", "grpo", *overrides), stdout=log, stderr=log, cwd=tmp_path
        )
    assert kill(running, tmp_path, victim, is_due)
    killed = time.monotonic()
    assert running.wait(timeout=300) == 1
    assert time.monotonic() - killed < 120
    assert not [process for process in psutil.process_iter(["cmdline"]) if any(
        str(tmp_path) in word for word in process.info["cmdline"] or ())]  # fmt: skip
    done = grpoflow(tmp_path, "run", "--until", "grpo", *overrides)
    assert done.returncode == 0, done.stderr[-3000:]
    (artifact,) = (tmp_path / "store" / "grpo").iterdir()
    assert json.loads((artifact / "result.json").read_text())["resumed_from"] >= 1
    areal.equals_torch(artifact, steps=4)  # with the moments of Adam, and the rows of the steps


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("source", [None, ASCEND])
def test_a_run_from_fetch_to_report(areal, checkout, tmp_path, source, workers):
    home = [] if source is None else [f"engine.areal_home={checkout(source)}"]
    words = [*home, f"layout=dp{workers}_mp1_pp1", "engine.rollout_cards=1"]
    words += ["engine=areal", "engine.device=cpu", f"engine.python={areal.python}", "model=tiny_qwen3"]
    words += [f"store={tmp_path / 'store'}", "train.steps=2", "train.prompts_per_step=4"]
    words += ["train.warmup_steps=0", "rollout.num_generations=4", "evaluate.num_prompts=32"]
    done = grpoflow(tmp_path, "run", *words, "evaluate.sample_prompts=0")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "result accuracy_sft=" in done.stdout
    verified = grpoflow(tmp_path, "verify", f"store={tmp_path / 'store'}")
    assert verified.returncode == 0
