"""The real packages, offline; what they wrote is read with their own readers."""

import json
import os
import re
import socket
import struct

import pytest

from stages.base.context import Context
from stages.grpo.metrics import StepLog
from stages.grpo.trackers import numbers, process
from stages.grpo.trackers.process import end_trackers, start_trackers
from stages.grpo.trackers.tensorboard import TensorBoard
from stages.report.stage import report_to_tracker

ROWS = [
    {"step": 1, "time_s": 5.0, "reward": 0.5, "reward/accuracy": 1.0},
    {"step": 2, "time_s": 6.0, "reward": 0.75, "reward/accuracy": 0.25},
]


def start(name, root):
    """Start a tracker as the stage does; return the log of metrics, which has a row already, and trackers."""
    config = {"train": {"beta": 0.5}}
    context = Context("grpo", config, {}, root / "output", root / "grpo-0123", root / "progress")
    metrics = StepLog(root / "metrics.jsonl", 0)
    metrics.append(ROWS[:1])  # a step of an earlier attempt
    return metrics, start_trackers([name], context, metrics.path)


def logged(name, root, monkeypatch, **variables):
    """Log ROWS; return the directory that the tracker leaves."""
    pytest.importorskip(name)
    for variable in [key for key in os.environ if key.startswith(name.upper())]:
        monkeypatch.delenv(variable)
    for variable, value in {"PYTHONPATH": os.getcwd(), **variables}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(root)
    (root / "output").mkdir()
    metrics, trackers = start(name, root)
    metrics.append(ROWS[1:])
    end_trackers(trackers)
    return root / "output" / name


def values_of_wandb(directory):
    """Yield step, name and value of an offline run's records, as `wandb sync` reads them."""
    from wandb.proto import wandb_internal_pb2

    (file,) = directory.glob("offline-run-*/*.wandb")
    data, pending, position = file.read_bytes(), b"", 7  # header: ":W&B", magic, version
    while position < len(data):
        if 32768 - position % 32768 < 7:  # no space for a header before the next block
            position += 32768 - position % 32768
            continue
        size, kind = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        pending += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # complete, or the last part
            history = wandb_internal_pb2.Record.FromString(pending).history.item
            row = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in history}
            yield from ((row["_step"], name, value) for name, value in row.items() if name[0] != "_")
            pending = b""


def values_of_swanlab(directory):
    (run,) = directory.glob("run-*")
    assert (run / "files" / "swanlab-metadata.json").read_text() == "{}"
    assert not (run / "files" / "requirements.txt").read_text()
    scalar = r'"data": ([\d.]+), "create_time": "[^"]*"}, "key": "([^"]*)", "step": (\d+)'
    text = (run / "backup.swanlab").read_bytes().decode("utf-8", "replace")
    return [(int(step), name, float(value)) for value, name, step in re.findall(scalar, text)]


def values_of_mlflow(directory):
    (run,) = (file.parent for file in directory.glob("mlruns/*/*/meta.yaml"))
    assert "user_id: unknown" in (run / "meta.yaml").read_text()
    assert {file.name: file.read_text() for file in run.glob("tags/*")} == {"mlflow.runName": "grpo-0123"}
    assert (run / "params/train.beta").read_text() == "0.5" and not (directory / "run_id").exists()
    times = {row["step"]: row["time_s"] for row in ROWS}
    for file in run.glob("metrics/*"):
        for time_ms, value, step in (map(float, line.split()) for line in file.read_text().splitlines()):
            assert time_ms == times[step] * 1000
            yield int(step), file.name.replace(".", "/"), value


@pytest.mark.parametrize(
    ("name", "values_of"),
    [("wandb", values_of_wandb), ("swanlab", values_of_swanlab), ("mlflow", values_of_mlflow)],
)
def test_every_number_is_at_its_step_and_nothing_of_the_machine(tmp_path, monkeypatch, name, values_of):
    directory = logged(name, tmp_path, monkeypatch)
    assert sorted(values_of(directory)) == sorted(
        (row["step"], key, row[key]) for row in ROWS for key in ("reward", "reward/accuracy")
    )
    content = b"".join(file.read_bytes() for file in directory.rglob("*") if file.is_file())
    assert b"grpo-0123" in content
    hidden = {"wandb": [str(tmp_path)], "mlflow": [str(tmp_path), socket.gethostname()]}
    assert not any(text.encode() in content for text in hidden.get(name, ()))


def test_mlflow_uses_the_server_of_its_variables_and_adds_the_report_to_its_run(tmp_path, monkeypatch, capfd):
    """The server is a directory: mlflow's client treats both alike."""
    runs = tmp_path / "server"
    variables = {"MLFLOW_TRACKING_URI": runs.as_uri(), "MLFLOW_EXPERIMENT_NAME": "mine"}
    directory = logged("mlflow", tmp_path, monkeypatch, **variables)
    assert not (directory / "mlruns").exists()
    (run,) = (file.parent for file in runs.glob("*/*/meta.yaml"))
    assert (run / "metrics/reward.accuracy").read_text().split() == ["5000", "1.0", "1", "6000", "0.25", "2"]
    (tmp_path / "index.html").write_text("<p>report</p>")
    report_to_tracker({"grpo": tmp_path / "output"}, tmp_path / "index.html")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "empty").as_uri())  # a server without the run
    report_to_tracker({"grpo": tmp_path / "output"}, tmp_path / "index.html")
    assert "warning: mlflow did not get the report" in capfd.readouterr().err
    assert (directory / "run_id").read_text() == run.name
    assert (run / "artifacts/index.html").read_text() == "<p>report</p>"
    assert [file.read_text() for file in runs.glob("*/meta.yaml") if "name: mine" in file.read_text()]


def events(data):
    """Yield the events of a tfevents file: length, its checksum (8 + 4 bytes), event, its checksum (4)."""
    from tensorboardX.proto.event_pb2 import Event

    start = 0
    while start < len(data):
        (length,) = struct.unpack_from("<Q", data, start)
        yield Event.FromString(data[start + 12 : start + 12 + length])
        start += 16 + length


def test_tensorboard_holds_every_number_at_its_step_and_time(tmp_path):
    board = TensorBoard(tmp_path, "", {})
    for row in ROWS:
        board.add(row)
    board.close()
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
    monkeypatch.setattr(process, "CLOSE_S", 2.0 if fault.startswith("hangs") else 300.0)
    metrics, opened = start("wandb", tmp_path)
    for step in range(1000):  # more than any pipe or queue of a package holds: it must not wait
        metrics.append([{"step": step, "time_s": 1.0, "reward": 0.5, "text": "x" * 100}])
        opened[0].has_stopped()
    end_trackers(opened)
    messages = "took more than 2 s to end" if fault.startswith("hangs") else "has stopped (exit code"
    assert f"warning: wandb {messages}" in capfd.readouterr().err
