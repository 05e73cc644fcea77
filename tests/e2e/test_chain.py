import json
import os
import signal
from pathlib import Path

import pytest

from stages.catalog import STAGES
from tests.e2e import crash
from tests.e2e.conftest import damage, manifests, run, to_build
from tests.pipeline.stage_digests import check
from tests.processes import living

CHAIN = [*STAGES]


def test_all_stages_run(finished):
    store, first = finished
    assert sorted(first.started) == sorted(CHAIN)
    result = first.result
    assert 0 <= float(result["accuracy_sft"]) <= 1
    assert float(result["gain"]) == pytest.approx(
        float(result["accuracy_grpo"]) - float(result["accuracy_sft"]), abs=2e-4
    )
    page = Path(result["report"]).read_text()
    assert page.startswith("<!DOCTYPE html>") and "came from the store" not in page
    assert damage(store) == []
    assert sorted(manifests(store)) == sorted(CHAIN)


def test_sft_and_evaluate_write_nothing_else_without_its_version(finished):
    for stage in ("sft", "evaluate"):
        (artifact,) = (finished[0] / stage).glob("[0-9a-f]*")
        check(stage, artifact, finished[0], exact=False)


def test_in_a_moved_store_nothing_is_started_and_the_result_is_printed(finished, copy):
    before = manifests(copy)
    again = run(copy)
    assert again.started == []
    output = {**finished[1].result, "run": again.result["run"]}
    assert again.result == {
        name: value.replace(str(finished[0]), str(copy)) for name, value in output.items()
    }
    assert manifests(copy) == before


@pytest.mark.parametrize(
    ("override", "stages"),
    [
        ("train.beta=0.5", ["grpo", "evaluate", "export", "report"]),
        ("layout=dp2_mp1_pp1", ["strategy", "split", "sft", "grpo", "evaluate", "export", "report"]),
    ],
)
def test_a_change_reruns_what_reads_it_and_what_follows_only(finished, override, stages):
    assert to_build(finished[0], override) == stages


@pytest.mark.parametrize("share", [pytest.param(0.2, marks=pytest.mark.long), 0.8])
@pytest.mark.parametrize(
    "stage",
    [
        stage if stage == "fetch" else pytest.param(stage, marks=pytest.mark.long)
        for stage in CHAIN
        if stage != "grpo"
    ],
)
def test_a_killed_stage_is_built_again_and_nothing_else(finished, tmp_path, stage, share):
    crash.trial(finished[0], tmp_path, stage, share)


def test_a_grpo_killed_with_all_its_workers_goes_on_to_the_same_last_bit(finished, without):
    store = without("grpo")
    process = crash.start(store, "grpo", sign=".work/grpo-*/checkpoints/step_*/state.json")
    crash.kill_everything(process, store)
    assert damage(store) == []
    again = run(store)
    assert again.started == ["grpo"]
    assert list((store / ".work").iterdir()) == []
    assert damage(store) == []
    resumed, complete = (next((path / "grpo").glob("[0-9a-f]*")) for path in (store, finished[0]))
    result = json.loads((resumed / "result.json").read_text())
    assert result["resumed_from"] >= 1
    assert len(result["peak_memory_gib"]) == 2  # of both workers
    rows, expected = (
        [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        for path in (resumed, complete)
    )
    same = ("step", "reward", "loss", "kl", "entropy", "grad_norm", "completion_length")
    assert [[row[key] for key in same] for row in rows] == [[row[key] for key in same] for row in expected]
    assert [row["step"] for row in rows] == [1, 2, 3, 4]
    for rank in (0, 1):
        weights = f"train/rank_{rank}/model.safetensors"
        assert (resumed / weights).read_bytes() == (complete / weights).read_bytes()


@pytest.mark.parametrize(  # SIGTERM in the default suite: test_sweep.py
    ("number", "exit_code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_a_signal_stops_all_processes(without, number, exit_code):
    store = without("grpo")
    process = crash.start(store, "grpo", sign=".logs/grpo-*/worker_1.log")
    os.kill(process.pid, number)
    assert process.wait(timeout=120) == exit_code
    stderr = (store.parent / "stderr").read_text()
    assert "repeat the command to resume" in stderr
    assert "Traceback" not in stderr
    assert not living(store)
