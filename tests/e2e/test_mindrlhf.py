"""engine=mindrlhf around a stand-in checkout (tests/data/mindrlhf_standin): real msrun, two workers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e import outside
from tests.e2e.conftest import Finished, luigi, run_plain
from tests.e2e.outside import DATA, STEPS, artifact, living, weights_moved
from tests.launch.namespaces import Machines, machines

HOME = DATA / "mindrlhf_standin"
BASE = [
    *outside.BASE,
    "engine=mindrlhf",
    f"engine.mindrlhf_home={HOME / 'e8a8fc1'}",
    "engine.use_vllm=0",
    "train.checkpoint_every=2",
]


def run(store: Path, *overrides: str) -> Finished:
    return run_plain(store, *BASE, *overrides)


def standin(fault: str) -> str:
    return f"+engine.env.STANDIN='{fault}'"


def rows(store: Path, name: str = "metrics.jsonl") -> list[dict]:
    return outside.rows(store, "grpo", name)


def hanging(store: Path) -> int:
    """Workers that have come to step 7."""
    return sum(
        "step: 7 start" in log.read_text() for log in store.glob(".logs/grpo-*/attempt_*/worker_*.log")
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which everything before grpo is done; grpo was ended by a dead worker at step 0."""
    store = tmp_path_factory.mktemp("mindrlhf") / "store"
    done = run(store, standin("die@0:1"))
    assert done.exit_code == 1, done.stderr
    for left in (".logs", ".work"):  # how far the other worker came is chance
        shutil.rmtree(store / left)
    return store


@pytest.fixture
def store(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "store", symlinks=True))


def test_a_killed_run_goes_on_and_its_result_is_exported_and_evaluated(store: Path) -> None:
    command = luigi(store, *BASE, standin("hang@7"))
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=store.parent)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and hanging(store) < 2:
        time.sleep(0.1)
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert living(store)  # nobody was left to end the workers
    done = run(store)
    assert done.exit_code == 0, done.stderr
    assert living(store) == []
    result = json.loads((artifact(store, "grpo") / "result.json").read_text())
    assert result["resumed_from"] == [0, 6]
    assert result["steps"] == STEPS
    assert [row["step"] for row in rows(store)] == list(range(1, STEPS + 1))
    assert [row["reward"] for row in rows(store)] == [step / 8 for step in range(1, STEPS + 1)]
    assert [row["step"] for row in rows(store, "completions.jsonl")] == list(range(1, STEPS + 1))
    assert weights_moved(store) == {float(STEPS)}
    assert float(done.result["gain"]) == 0
    page = Path(done.result["report"]).read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert not list(artifact(store, "fetch").glob("param_name_map.json"))


@pytest.mark.slow
def test_a_checkpoint_that_a_kill_cut_off_is_passed_over(store: Path) -> None:
    failed = run(store, standin("kill@6:1"))
    assert failed.exit_code == 1
    (root,) = store.glob(".work/grpo-*/checkpoints")
    assert (root / "train/rank_0/policy_model_rank_0-0_6.safetensors").exists()
    done = run(store)
    assert done.exit_code == 0, done.stderr
    assert json.loads((artifact(store, "grpo") / "result.json").read_text())["resumed_from"] == [0, 4]
    assert weights_moved(store) == {float(STEPS)}


@pytest.mark.slow
def test_metadata_with_bytes_left_over_is_repaired(store: Path) -> None:
    # 0_10 and then 1_0: a shorter text over a longer one, which is no JSON any more.
    broken = run(store, "engine.epochs=2", standin("die@13:0"))
    assert broken.exit_code == 1
    (root,) = store.glob(".work/grpo-*/checkpoints")
    with pytest.raises(json.JSONDecodeError):
        json.loads((root / "train/rank_0/meta.json").read_text())
    done = run(store, "engine.epochs=2")
    assert done.exit_code == 0, done.stderr
    assert [row["step"] for row in rows(store)] == list(range(1, 2 * STEPS + 1))
    assert weights_moved(store) == {2.0 * STEPS}


def test_the_worker_that_failed_is_told_not_the_one_that_waited(store: Path) -> None:
    done = run(store, standin("die@3:1"))
    assert done.exit_code == 1
    assert "out of memory, said worker 1" in done.stderr
    assert "worker_1.log" in done.stderr
    assert living(store) == []
    assert not list(store.glob("grpo/*/manifest.json"))


def test_a_run_that_hangs_is_ended(store: Path) -> None:
    done = run(store, standin("hang@3"), "engine.silence_timeout_s=3")
    assert done.exit_code == 1
    assert "hung: no worker wrote a line for 3 s" in done.stderr
    assert living(store) == []


def test_exit_code_0_without_the_proof_is_a_failure(store: Path) -> None:
    done = run(store, standin("quiet@5"))
    assert done.exit_code == 1
    assert "run grpo train end" in done.stderr
    assert not list(store.glob("grpo/*/manifest.json"))


def test_run_refuses_without_a_checkout(store: Path) -> None:
    done = run(store, "engine.mindrlhf_home=null")
    assert done.exit_code == 2
    assert "engine.mindrlhf_home: is required to run" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("contract", "form", "layout"),
    [
        ("e8a8fc1", "ms_safetensors", "dp1_mp2_pp1"),
        ("e8a8fc1", "ckpt", "dp1_mp2_pp1"),
        ("0cd087455", "hf_safetensors", "dp1_mp2_pp1"),
        ("e8a8fc1", "hf_safetensors", "dp1_mp2_pp2"),  # four workers
    ],
)
def test_every_format_version_and_layout_comes_home(
    store: Path, contract: str, form: str, layout: str
) -> None:
    engine = [f"engine.mindrlhf_home={HOME / contract}", f"engine.load_ckpt_format={form}"]
    done = run(store, *engine, f"layout={layout}")
    assert done.exit_code == 0, done.stderr
    losses = [row["loss"] for row in rows(store)]  # the stand-in adds the rank to the loss that it logs
    last = 3 if layout.endswith("pp2") else 0
    assert losses == pytest.approx([1 / step + last for step in range(1, STEPS + 1)])
    assert weights_moved(store) == {float(STEPS)}
    assert json.loads((artifact(store, "grpo") / "result.json").read_text())["contract"] == contract


def test_the_scripts_of_a_dry_run_work_without_grpoflow(store: Path) -> None:
    arguments = [sys.executable, "-m", "pipeline.cli", "run", "--dry-run", f"store={store}", *BASE]
    shown = subprocess.run(arguments, capture_output=True, text=True, cwd=store.parent)
    assert shown.returncode == 0, shown.stderr
    script = Path(shown.stdout.splitlines()[-1])
    assert living(store) == []
    bare = {"PATH": "/usr/bin:/bin", "HOME": str(store), "LOG_DIR": str(store.parent / "logs")}
    by_hand = subprocess.run(["bash", str(script)], env=bare, capture_output=True, text=True, timeout=120)
    assert by_hand.returncode == 0, by_hand.stdout + by_hand.stderr
    assert "run grpo train end" in (store.parent / "logs" / "worker_0.log").read_text()
    assert os.path.exists(store.parent / "logs" / "worker_1.log")


def on_machines(made: Machines) -> list[str]:
    """Overrides for one worker on each machine."""
    return [
        "launcher=ssh",
        f"launcher.hosts=[{','.join(made.addresses)}]",
        f"launcher.ssh={json.dumps(made.ssh)}",
        "launcher.cards_per_node=1",
        "launcher.grace_s=2",
        "+engine.env.STANDIN_MEET=1",
    ]


@pytest.mark.nodes
@pytest.mark.slow
def test_one_command_runs_it_on_two_machines(store: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with machines(2, tmp_path_factory.mktemp("machines")) as made:
        done = run(store, *on_machines(made))
    assert done.exit_code == 0, done.stderr
    (logs,) = store.glob(".logs/grpo-*/attempt_*")
    assert "met as rank 1 of 2" in (logs / "worker_1.log").read_text()
    assert "nodes 10.77.0.1, 10.77.0.2" in (logs / "start.log").read_text()
    assert weights_moved(store) == {float(STEPS)}
    assert living(store) == []


@pytest.mark.nodes
@pytest.mark.slow
def test_a_run_on_four_machines_that_loses_one_names_it_and_goes_on(
    store: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    four = [*BASE, "layout=dp1_mp2_pp2"]
    with machines(4, tmp_path_factory.mktemp("machines")) as made:
        command = luigi(store, *four, *on_machines(made), standin("hang@7"))
        first = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=store.parent
        )
        deadline = time.monotonic() + 120
        while first.poll() is None and time.monotonic() < deadline and hanging(store) < 4:
            time.sleep(0.1)
        made.cut(2)
        _, told = first.communicate(timeout=120)
        assert first.returncode == 1
        assert "node 10.77.0.3 ended with exit code 255 (ssh lost it)" in told
        made.mend(2)
        done = run_plain(store, *four, *on_machines(made))
    assert done.exit_code == 0, done.stderr
    result = json.loads((artifact(store, "grpo") / "result.json").read_text())
    assert (result["resumed_from"], result["steps"]) == ([0, 6], STEPS)
    assert weights_moved(store) == {float(STEPS)}
    assert living(store) == []
