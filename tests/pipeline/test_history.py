import json
import shlex
from typing import Any

import pytest

from pipeline.cli import main
from pipeline.errors import ConfigError
from pipeline.store import history, leases
from pipeline.ui import live

STARTED = {"overrides": ["seed=1"], "config": {"seed": 1}, "artifacts": {"fetch": "fetch/00"}}


def start(store, run):
    history.record(store, run, "started", **STARTED)


def test_states_of_runs(tmp_path):
    for run in ("done", "failed", "died", "living"):
        start(tmp_path, run)
    history.record(tmp_path, "done", "finished", result={"gain": 0.2})
    history.record(tmp_path, "failed", "failed", stage="grpo", message="boom")
    history.record(tmp_path, "failed", "interrupted", stage="sft", message="later")  # the failure counts
    held = leases.take(tmp_path, "living")
    runs = history.runs(tmp_path)
    assert [run.state for run in runs.values()] == ["finished", "failed", "died", "running"]
    assert runs["done"].result == {"gain": 0.2}
    assert (runs["failed"].failed_stage, runs["failed"].message) == ("grpo", "boom")
    held.release()
    assert history.runs(tmp_path)["living"].state == "died"


@pytest.mark.parametrize("event", ["finished", "failed", "interrupted"])
@pytest.mark.parametrize("took", [12.5, None, -1, "x", True, float("nan"), 10**400])
def test_a_run_took_what_its_end_states_else_the_time_since_its_start(event, took):
    end = {"run": "good", "event": event, "time_s": 4.0, "result": {}, "stage": "grpo", "message": ""}
    lines = [json.dumps(line) for line in (GOOD, end if took is None else {**end, "took_s": took})]
    record = history.parse(lines)["good"]
    assert (record.ended, record.took_s) == (4.0, 12.5 if took == 12.5 else 3.0)
    assert history.parse(lines[:1])["good"].duration == ""


def test_a_run_is_identified_by_id_prefix_name_and_last(tmp_path):
    for run in ("20260101-aa", "20260101-ab", "20260102-aa"):
        start(tmp_path, run)
    history.record(tmp_path, "20260101-ab", "named", name="best")
    assert history.find(tmp_path, "20260101-aa").id == "20260101-aa"
    assert history.find(tmp_path, "20260102").id == "20260102-aa"
    assert history.find(tmp_path, "best").id == "20260101-ab"
    assert history.find(tmp_path, "last").id == "20260102-aa"
    for expected in ("20260101", "nobody"):
        with pytest.raises(ConfigError, match="must match one"):
            history.find(tmp_path, expected)


GOOD: dict[str, Any] = {"run": "good", "event": "started", "time_s": 1.0, **STARTED}
DONE: dict[str, Any] = {"run": "good", "event": "finished", "time_s": 2.0, "result": {"accuracy_grpo": 0.5}}
WRONG: list[Any] = [None, True, -1, float("nan"), 10**400, "x/../..", "[/b]", [1], {"a": 1}]


COMMANDS = (
    "runs", "runs --json", "gc", "show RUN", "show RUN --json", "report RUN", "serve-check RUN", "logs RUN",
    "watch RUN --once", "watch RUN --json", "diff RUN last", "diff RUN last --json",
)  # fmt: skip
"""Everything that reads the history."""


def test_wrong_types_in_the_history_crash_no_command(tmp_path, capsys):
    (tmp_path / "grpo" / "0123456789abcdef").mkdir(parents=True)
    kinds = [GOOD, DONE, {**GOOD, "event": "failed", "stage": "grpo", "message": "boom"}]
    kinds += [{**GOOD, "event": "named", "name": "best"}]
    events: list[Any] = [GOOD, DONE, {**GOOD, "run": "other"}]
    for wrong in WRONG:
        events += [{**event, key: wrong} for event in kinds for key in event]
        events += [{**GOOD, "config": {"report": wrong, "engine": wrong, "model": wrong}, "run": "other"}]
        events += [{**DONE, "result": {"accuracy_sft": wrong, "accuracy_grpo": wrong}, "run": "other"}, wrong]
    lines = [json.dumps(event) for event in events]
    lines += ["", "null", "{", "[" * 100_000, "\x00", json.dumps(GOOD)[:-20], json.dumps(GOOD)]
    (tmp_path / history.FILE).write_text("\n".join(lines) + "\n")
    assert live.overview(tmp_path)
    for run in ("good", "other"):
        for command in COMMANDS:
            assert main([*command.replace("RUN", run).split(), f"store={tmp_path}"]) in (0, 1, 2)
    assert history.runs(tmp_path)["good"].artifacts == STARTED["artifacts"]
    assert "Traceback" not in capsys.readouterr().err


def test_the_command_of_a_run_has_its_options_and_quotes(tmp_path):
    values = {"overrides": ["seed=1", "report.title='a b'"], "config": {}, "artifacts": {}}
    history.record(tmp_path, "r1", "started", **values, target="--until grpo", config_dir="/my conf")
    assert shlex.split(history.find(tmp_path, "r1").command) == [
        "grpoflow", "run", "--config-dir", "/my conf", "--until", "grpo", "seed=1", "report.title='a b'",
    ]  # fmt: skip


def test_only_new_lines_are_parsed(tmp_path, monkeypatch):
    """`watch` and `logs -f` read the history every second."""
    parsed = []
    original = history.read_event
    monkeypatch.setattr(history, "read_event", lambda line: parsed.append(line) or original(line))
    for run in ("one", "two"):
        start(tmp_path, run)
    assert list(history.runs(tmp_path)) == ["one", "two"]
    parsed.clear()
    assert list(history.runs(tmp_path)) == ["one", "two"] and not list(filter(None, parsed))
    history.record(tmp_path, "two", "finished", result={})
    assert history.runs(tmp_path)["two"].state == "finished" and len(list(filter(None, parsed))) == 1


def test_a_history_is_read_again_after_any_change(tmp_path):
    file = tmp_path / history.FILE
    start(tmp_path, "one")
    first = file.read_bytes()
    history.runs(tmp_path)["one"].state = "changed by a caller"
    assert history.runs(tmp_path)["one"].state == "died"
    file.write_bytes(first + b'{"run": "one", "event": "named", "time_s": 1, "name": "cut')
    assert history.runs(tmp_path)["one"].name is None
    file.write_bytes(first + b'{"run": "one", "event": "named", "time_s": 1, "name": "cut"}')
    assert history.runs(tmp_path)["one"].name == "cut"  # without a newline
    start(tmp_path, "two")
    assert [run.name for run in history.runs(tmp_path).values()] == ["cut", None]
    file.write_bytes(first.replace(b"one", b"six") * 9)  # edited in place
    assert list(history.runs(tmp_path)) == ["six"]
    file.unlink()
    assert history.runs(tmp_path) == {}
    start(tmp_path, "new")
    assert list(history.runs(tmp_path)) == ["new"]
