import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from launch.process import JOB_VARIABLE, end_job
from pipeline.store import Store
from pipeline.verify import verify
from tests.e2e.conftest import Finished, command, manifests, run

CHAIN = ["fetch", "fetch_dataset", "convert", "tokenize", "strategy", "split", "sft", "grpo"]
CHAIN += ["evaluate", "export", "report"]


def test_the_whole_chain_runs(finished: tuple[Path, Finished]) -> None:
    store, first = finished
    assert first.exit_code == 0, first.stderr
    assert sorted(first.started) == sorted(CHAIN)
    result = first.result
    assert 0 <= float(result["accuracy_sft"]) <= 1
    assert float(result["gain"]) == pytest.approx(
        float(result["accuracy_grpo"]) - float(result["accuracy_sft"]), abs=2e-4
    )
    assert Path(result["report"]).read_text().startswith("<!doctype html>")
    assert list(verify(Store(store), deep=True)) == []
    assert sorted(manifests(store)) == sorted(CHAIN)


def test_split_really_splits_and_generate_really_differs(finished: tuple[Path, Finished]) -> None:
    from stages.weights.header import read_header

    store = finished[0]
    (split,), (sft,) = (list((store / stage).glob("[0-9a-f]*")) for stage in ("split", "sft"))
    whole = read_header(next((store / "fetch").glob("[0-9a-f]*/model.safetensors"))).tensors
    name = "model.layers.0.attention.wq.weight"
    full = whole["model.layers.0.self_attn.q_proj.weight"].shape
    for rank in (0, 1):
        for root in (split, sft):
            shard = read_header(root / "train" / f"rank_{rank}" / "model.safetensors").tensors[name]
            assert shard.shape == (full[0] // 2, full[1])
        generate = read_header(sft / "generate" / f"rank_{rank}" / "model.safetensors").tensors[name]
        assert generate.shape == full


def test_nothing_to_do_starts_nothing_and_still_tells_the_result(finished: tuple[Path, Finished]) -> None:
    store, first = finished
    before = manifests(store)
    again = run(store)
    assert again.exit_code == 0
    assert again.started == []
    assert {**again.result, "run": ""} == {**first.result, "run": ""}
    assert manifests(store) == before


def test_beta_reruns_grpo_and_what_follows_only(copy: Path) -> None:
    changed = run(copy, "train.beta=0.5")
    assert changed.exit_code == 0, changed.stderr
    assert sorted(changed.started) == ["evaluate", "export", "grpo", "report"]


def test_a_layout_reruns_strategy_split_and_what_follows_only(copy: Path) -> None:
    changed = run(copy, "layout=dp2_mp1_pp1")
    assert changed.exit_code == 0, changed.stderr
    assert sorted(changed.started) == ["evaluate", "export", "grpo", "report", "sft", "split", "strategy"]


def test_a_missing_upstream_is_built_again_and_nothing_else(without) -> None:
    again = run(without("convert"))
    assert again.exit_code == 0, again.stderr
    assert again.started == ["convert"]


def kill_everything(process: subprocess.Popen[str], store: Path) -> None:
    """What kill -9 of the whole tree does: the orchestrator, the stage, msrun and its workers."""
    process.kill()
    for member in psutil.process_iter():
        try:
            job = member.environ().get(JOB_VARIABLE, "")
        except psutil.Error:
            continue
        if job.startswith(str(store)):
            end_job(job, grace_s=0.0)
    process.wait()


def start_and_wait_for(store: Path, sign: Path | None, stage: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(command(store), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith(f"{stage}: started"):
            break
    deadline = time.monotonic() + 120
    while sign is not None and not list(sign.parent.glob(sign.name)):
        assert process.poll() is None and time.monotonic() < deadline, f"{sign} did not appear"
        time.sleep(0.05)
    return process


@pytest.mark.parametrize("stage", [stage for stage in CHAIN if stage != "grpo"])
def test_a_killed_stage_is_built_again_and_nothing_else(without, stage: str) -> None:
    store = without(stage)
    before = manifests(store)
    process = start_and_wait_for(store, None, stage)
    time.sleep(0.3)
    kill_everything(process, store)
    assert list(verify(Store(store), deep=True)) == []
    again = run(store)
    assert again.exit_code == 0, again.stderr
    assert set(again.started) <= {stage}
    after = manifests(store)
    assert {name: after[name] for name in before} == before
    assert sorted(after) == sorted(CHAIN)


def test_a_killed_grpo_goes_on_from_its_last_checkpoint(without) -> None:
    store = without("grpo")
    process = start_and_wait_for(store, store / ".work" / "grpo-*" / "checkpoints" / "*", "grpo")
    kill_everything(process, store)
    again = run(store)
    assert again.exit_code == 0, again.stderr
    assert again.started == ["grpo"]
    (grpo,) = (store / "grpo").glob("[0-9a-f]*")
    assert json.loads((grpo / "result.json").read_text())["resumed_from"] >= 1
    steps = [json.loads(line)["step"] for line in (grpo / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 3, 4]
    assert not (store / ".work").exists() or list((store / ".work").iterdir()) == []


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_whole_tree_within_ten_seconds(without, number: int, exit_code: int) -> None:
    store = without("grpo")
    process = start_and_wait_for(store, store / ".logs" / "grpo-*" / "worker_1.log", "grpo")
    began = time.monotonic()
    os.kill(process.pid, number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == exit_code
    assert time.monotonic() - began < 10
    assert "type the same command to go on" in stderr
    assert "Traceback" not in stderr
    for member in psutil.process_iter():
        try:
            assert not member.environ().get(JOB_VARIABLE, "").startswith(str(store))
        except psutil.Error:
            continue


def test_a_failing_stage_is_told_once_and_ends_with_one(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "train.jsonl").write_text('{"question": "1+1?", "answer": "#### 2"}\nnot json\n')
    (data / "test.jsonl").write_text('{"question": "1+1?", "answer": "#### 2"}\n')
    failed = run(tmp_path / "store", "dataset=gsm8k", f"dataset.path={data}", "dataset.train_rows=null")
    assert failed.exit_code == 1
    assert "stage fetch_dataset failed: exit code 1" in failed.stderr
    assert "train.jsonl:2" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert not list((tmp_path / "store" / "fetch_dataset").glob("[0-9a-f]*"))


def test_an_invalid_configuration_ends_with_two_before_anything_runs(tmp_path: Path) -> None:
    failed = run(tmp_path / "store", "layout=dp1_mp3_pp1", "train.beta=-1")
    assert failed.exit_code == 2
    assert "layout.train.model_parallel=3: must divide" in failed.stderr
    assert "train.beta=-1" in failed.stderr
    assert not (tmp_path / "store").exists()


def test_the_orchestrator_imports_no_accelerator_framework() -> None:
    code = (
        "import sys, pipeline, pipeline.cli, pipeline.commands, launch.job\n"
        "print(sorted({'mindspore', 'mindformers', 'torch', 'ray'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
