"""The Python interface, and the example of its page."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import grpoflow
from tests.pipeline.artifacts import complete
from tests.processes import living, unanswered_download, wait_until

DOCS = Path(__file__).parents[1] / "docs"
METRICS = [{"step": step, "time_s": 0.0, "reward": step / 10} for step in (1, 2)]
COMPLETIONS = [
    {"step": step, "text": f"answer {step}", "reward": reward}
    for step, reward in ((1, 1.0), (2, 1.0), (2, 0.25))
]


@pytest.fixture
def store(tmp_path):
    """A store with one finished run, which had nothing to do."""
    overrides = [f"store={tmp_path / 'store'}", "train.beta=0.02"]
    lines = {"metrics.jsonl": METRICS, "completions.jsonl": COMPLETIONS}
    files = {name: "".join(json.dumps(row) + "\n" for row in rows) for name, rows in lines.items()}
    complete(overrides, files={"grpo": files})
    grpoflow.run(overrides)
    return grpoflow.open(tmp_path / "store")


def test_a_run_has_its_configuration_metrics_samples_and_files(store):
    (run,) = store.runs()
    assert store.run("last").id == store.run(run.id[:12]).id == run.id
    assert (run.state, run.result["gain"]) == ("finished", 0.5)
    assert "train.beta=0.02" in run.overrides
    assert run.config["train"]["beta"] == 0.02
    assert run.metrics() == METRICS
    assert [row["text"] for row in run.samples(2)] == ["answer 2", "answer 2"]
    assert run.samples(7) == []
    assert (run.model_dir / "config.json").is_file() and run.report.name == "index.html"


def test_what_is_missing_raises_an_error(store, tmp_path):
    with pytest.raises(grpoflow.Error, match="nosuch"):
        store.run("nosuch")
    with pytest.raises(grpoflow.Error, match="last"):
        grpoflow.open(tmp_path / "empty").run()
    for path in (store.path / "export").iterdir():
        path.rename(tmp_path / "removed")
    with pytest.raises(grpoflow.Error, match="export of run"):
        _ = store.run().model_dir


def test_plan_returns_what_the_command_prints(store):
    planned = grpoflow.plan([f"store={store.path}", "train.beta=0.02"])
    assert {stage["state"] for stage in planned["stages"]} == {"CACHED"}
    part = grpoflow.plan([f"store={store.path}"], until="split", force=["convert"])
    assert part["stages"][-1]["stage"] == "split" and part["target"] == "--until split"
    with pytest.raises(grpoflow.Error, match=r"train\.betta"):
        grpoflow.plan(["train.betta=1"])


def test_run_builds_and_returns_the_run(tmp_path):
    run = grpoflow.run([f"store={tmp_path}"], only=["strategy"])
    assert run.state == "finished" and run.id == grpoflow.open(tmp_path).run("last").id
    with pytest.raises(grpoflow.Error, match="has no stage export"):
        _ = run.model_dir
    with pytest.raises(grpoflow.Error, match="no such stage"):
        grpoflow.run([f"store={tmp_path}"], only=["strateggy"])


def test_one_text_is_one_override(tmp_path, monkeypatch):
    monkeypatch.setenv("GRPOFLOW_STORE", str(tmp_path))
    assert grpoflow.plan("seed=1", only="split", force="split")["target"] == "--only split"
    run = grpoflow.run("seed=1", only="fetch")
    assert run.overrides == ["seed=1"] and run.config["seed"] == 1
    for wrong in ([1], [["seed=1"]], ["--until=fetch"], ["seed=1 train.beta=0.1"]):
        with pytest.raises(grpoflow.Error):
            grpoflow.plan(wrong)
    with pytest.raises(grpoflow.Error, match="only"):
        grpoflow.plan([], only=[None])


INTERRUPTED = "import sys, grpoflow; grpoflow.run(sys.argv[1:], only=['fetch_dataset'])"


def test_an_interrupt_ends_the_stage_before_it_is_raised(tmp_path):
    with unanswered_download() as overrides:
        line = [sys.executable, "-c", INTERRUPTED, f"store={tmp_path}", *overrides]
        started = subprocess.Popen(line, stderr=subprocess.PIPE, text=True, start_new_session=True)
        wait_until(lambda: living(tmp_path), 120, started)
        os.killpg(started.pid, signal.SIGINT)
        assert "KeyboardInterrupt" in started.communicate(timeout=120)[1]
    assert grpoflow.open(tmp_path).run().state == "interrupted" and not living(tmp_path)


@pytest.mark.parametrize("page", ["python.md", "zh/python.md", "trackers.md", "zh/trackers.md"])
def test_the_examples_of_the_pages_run(page, store, monkeypatch, capsys):
    monkeypatch.chdir(store.path.parent)
    values: dict[str, object] = {}
    for cell in re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.S):
        exec(compile(cell, page, "exec"), values)
    if "python" in page:
        assert values["rewards"] == [0.1, 0.2]
        return
    (line,) = values["figure"].data
    assert list(line.y) == [0.1, 0.2]
    assert capsys.readouterr().out == "answer 2 0.25\n"
