"""The real packages, offline; what they wrote is read with their own readers."""

import json
import os
import socket
import struct
import subprocess
import sys
import time

import pytest

from stages.base.context import Context
from stages.grpo.metrics import StepLog
from stages.grpo.trackers import numbers, process
from stages.grpo.trackers.process import end_trackers, start_trackers
from stages.report.stage import report_to_tracker

ROWS = [
    {"step": 1, "time_s": 5.0, "reward": 0.5, "reward/accuracy": 1.0},
    {"step": 2, "time_s": 6.0, "reward": 0.75, "reward/accuracy": 0.25},
]
LOG = """
import json, sys
from pathlib import Path
from stages.base.context import Context
from stages.grpo.trackers.process import end_trackers, start_trackers
from stages.grpo.metrics import StepLog
root, name = Path(sys.argv[1]), sys.argv[2]
rows = json.loads(sys.argv[3])
config = {"train": {"beta": 0.5}}
context = Context("grpo", config, {}, root / "output", root / "grpo-0123", root / "progress")
metrics = StepLog(root / "metrics.jsonl", 0)
metrics.append(rows[:1])  # a step of an earlier attempt
trackers = start_trackers([name], context, metrics.path)
metrics.append(rows[1:])
end_trackers(trackers)
"""


def logged(name, root, variables=None):
    """Run the logger in a process of its own, as the stage does; the directory that it leaves."""
    pytest.importorskip(name)
    (root / "output").mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(name.upper())}
    command = [sys.executable, "-c", LOG, str(root), name, json.dumps(ROWS)]
    subprocess.run(
        command, check=True, env={**environment, **(variables or {}), "PYTHONPATH": os.getcwd()}, cwd=root
    )
    return root / "output" / name


def test_wandb_holds_every_number_at_its_step(tmp_path):
    (run,) = (logged("wandb", tmp_path)).glob("offline-run-*/*.wandb")
    actual = {}
    for record in wandb_records(run):
        items = {
            "/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in record.history.item
        }
        if items:
            actual[items["_step"]] = {name: value for name, value in items.items() if name[0] != "_"}
    assert actual == {
        row["step"]: {name: row[name] for name in ("reward", "reward/accuracy")} for row in ROWS
    }
    text = run.read_bytes()
    assert str(tmp_path).encode() not in text and b"grpo-0123" in text


def wandb_records(file):
    """Records of an offline run, as `wandb sync` reads them."""
    from wandb.proto import wandb_internal_pb2

    data, records, mesh = file.read_bytes(), [], 7  # header: ":W&B", magic, version
    pending = b""
    while mesh < len(data):
        left = 32768 - mesh % 32768
        if left < 7:
            mesh += left
            continue
        size, kind = int.from_bytes(data[mesh + 4 : mesh + 6], "little"), data[mesh + 6]
        pending += data[mesh + 7 : mesh + 7 + size]
        mesh += 7 + size
        if kind in (1, 4):  # whole, or the last part
            records.append(wandb_internal_pb2.Record.FromString(pending))
            pending = b""
    return records


def test_swanlab_holds_every_number_at_its_step_and_nothing_of_the_machine(tmp_path):
    (run,) = (logged("swanlab", tmp_path)).glob("run-*")
    lines = (run / "backup.swanlab").read_bytes().decode("utf-8", "replace")
    for row in ROWS:
        for name in ("reward", "reward/accuracy"):
            assert f'"data": {row[name]}, "create_time"' in lines
            assert f'"key": "{name}", "step": {row["step"]},' in lines
    assert (run / "files" / "swanlab-metadata.json").read_text() == "{}"
    assert not (run / "files" / "requirements.txt").read_text()


def test_mlflow_holds_parameters_and_every_number_and_nothing_of_the_machine(tmp_path):
    directory = logged("mlflow", tmp_path)
    assert not (directory / "run_id").exists()
    check_mlflow(directory / "mlruns")
    tags = {file.name: file.read_text() for file in directory.glob("mlruns/*/*/tags/*")}
    assert tags == {"mlflow.runName": "grpo-0123"}
    (meta,) = directory.glob("mlruns/*/*/meta.yaml")
    assert "user_id: unknown" in meta.read_text()
    contents = [file.read_text() for file in directory.rglob("*") if file.is_file()]
    assert not any(str(tmp_path) in text or socket.gethostname() in text for text in contents)


def test_mlflow_uses_the_server_of_its_variables_and_adds_the_report_to_its_run(tmp_path, monkeypatch, capfd):
    """The server is a directory: mlflow's client treats both alike."""
    runs = tmp_path / "server"
    variables = {"MLFLOW_TRACKING_URI": runs.as_uri(), "MLFLOW_EXPERIMENT_NAME": "mine"}
    directory = logged("mlflow", tmp_path, variables)
    assert not (directory / "mlruns").exists()
    run = check_mlflow(runs)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "index.html").write_text("<p>report</p>")
    report_to_tracker({"grpo": tmp_path / "output"}, tmp_path / "index.html")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "empty").as_uri())  # a server without the run
    report_to_tracker({"grpo": tmp_path / "output"}, tmp_path / "index.html")
    assert "warning: mlflow did not get the report" in capfd.readouterr().err
    assert (directory / "run_id").read_text() == run.name
    assert (run / "artifacts/index.html").read_text() == "<p>report</p>"
    assert [file.read_text() for file in runs.glob("*/meta.yaml") if "name: mine" in file.read_text()]


def check_mlflow(runs):
    """Check parameters and metrics in a directory of mlflow; return the run's directory."""
    (run,) = (file.parent for file in runs.glob("*/*/meta.yaml"))
    assert (run / "params/train.beta").read_text() == "0.5"
    for name in ("reward", "reward/accuracy"):
        lines = [line.split() for line in (run / "metrics" / name.replace("/", ".")).read_text().splitlines()]
        expected = [[row["time_s"] * 1000, row[name], row["step"]] for row in ROWS]
        assert [[*map(float, line)] for line in lines] == expected
    return run


def events(data):
    """Yield the events of a tfevents file: length, its checksum (8 + 4 bytes), event, its checksum (4)."""
    from tensorboardX.proto.event_pb2 import Event

    start = 0
    while start < len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        yield Event.FromString(data[start + 12 : start + 12 + length])
        start += 16 + length


def test_tensorboard_holds_every_number_at_its_step_and_time(tmp_path):
    program = f"""
import sys
from pathlib import Path
from stages.grpo.trackers.tensorboard import TensorBoard
board = TensorBoard(Path(sys.argv[1]), "", {{}})
for row in {ROWS}:
    board.add(row)
board.close()
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
    (file,) = tmp_path.glob("*.tfevents.*")
    actual = {}
    for event in events(file.read_bytes()):
        for value in event.summary.value:
            actual.setdefault((event.step, event.wall_time), {})[value.tag] = value.simple_value
    assert actual == {(row["step"], row["time_s"]): numbers(row) for row in ROWS}


BAD = {
    "dies at the start": "def init(**_): raise RuntimeError('no key')",
    "hangs at a row": "def log(*_, **__): time.sleep(600)",
    "dies at the end": "def finish(): raise OSError(28, 'No space left on device')",
    "hangs after the end": "import atexit; atexit.register(time.sleep, 600)",
}
PACKAGE = """
import os, time, types
Settings = dict
def teardown(): pass
def log(*_, **__): pass
def finish(): pass
def init(**_): return types.SimpleNamespace(log=log, finish=finish)
"""


@pytest.mark.parametrize("fault", BAD)
def test_a_logger_that_dies_or_hangs_costs_training_nothing_but_its_log(tmp_path, monkeypatch, capfd, fault):
    (tmp_path / "wandb.py").write_text(PACKAGE + BAD[fault])
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.getcwd()}")
    monkeypatch.setattr(process, "CLOSE_S", 2.0 if fault.startswith("hangs") else 20.0)
    context = Context("grpo", {}, {}, tmp_path / "output", tmp_path / "work", tmp_path / "progress")
    metrics = StepLog(tmp_path / "metrics.jsonl", 0)
    opened = start_trackers(["wandb"], context, metrics.path)
    began = time.monotonic()
    for step in range(1000):  # more than any pipe or queue of a package holds
        metrics.append([{"step": step, "time_s": 1.0, "reward": 0.5, "text": "x" * 100}])
        opened[0].has_stopped()
    assert time.monotonic() - began < 60.0  # one that waited would never come back
    end_trackers(opened)
    messages = "took more than 2 s to end" if fault.startswith("hangs") else "has stopped (exit code"
    assert f"warning: wandb {messages}" in capfd.readouterr().err
