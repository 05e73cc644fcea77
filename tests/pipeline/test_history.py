import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import history
from pipeline.errors import ConfigError

STARTED = {"overrides": ["seed=1"], "config": {"seed": 1}, "artifacts": {"fetch": "fetch/00"}}


def start(store: Path, run: str) -> None:
    history.record(store, run, "started", **STARTED)


def test_states(tmp_path: Path) -> None:
    for run in ("done", "failed", "died", "living"):
        start(tmp_path, run)
    history.record(tmp_path, "done", "finished", result={"gain": 0.2})
    history.record(tmp_path, "failed", "failed", stage="grpo", message="boom")
    held = history.lease(tmp_path, "living")
    runs = history.runs(tmp_path)
    assert [(run.id, run.state) for run in runs.values()] == [
        ("done", "finished"),
        ("failed", "failed"),
        ("died", "died"),
        ("living", "running"),
    ]
    assert runs["done"].result == {"gain": 0.2}
    assert (runs["failed"].failed_stage, runs["failed"].message) == ("grpo", "boom")
    held.release()
    assert history.runs(tmp_path)["living"].state == "died"


def test_a_lease_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    start(tmp_path, "run")
    code = (
        "import sys, time; from pathlib import Path; from pipeline import history; "
        "lease = history.lease(Path(sys.argv[1]), 'run'); print('held', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    assert history.runs(tmp_path)["run"].state == "running"
    holder.kill()
    holder.wait()
    assert history.runs(tmp_path)["run"].state == "died"


def test_a_line_cut_short_by_a_crash_costs_that_line_only(tmp_path: Path) -> None:
    start(tmp_path, "one")
    with (tmp_path / history.FILE).open("a") as file:
        file.write('{"run": "one", "event": "fini')
    start(tmp_path, "two")
    assert list(history.runs(tmp_path)) == ["one", "two"]


def test_a_run_is_found_by_id_beginning_name_and_last(tmp_path: Path) -> None:
    for run in ("20260101-aa", "20260101-ab", "20260102-aa"):
        start(tmp_path, run)
    history.record(tmp_path, "20260101-ab", "named", name="best")
    assert history.find(tmp_path, "20260101-aa").id == "20260101-aa"
    assert history.find(tmp_path, "20260102").id == "20260102-aa"
    assert history.find(tmp_path, "best").id == "20260101-ab"
    assert history.find(tmp_path, "last").id == "20260102-aa"
    for wanted in ("20260101", "nobody"):
        with pytest.raises(ConfigError, match="must fit one"):
            history.find(tmp_path, wanted)


def test_pins_come_and_go(tmp_path: Path) -> None:
    start(tmp_path, "run")
    history.record(tmp_path, "run", "pinned")
    assert history.runs(tmp_path)["run"].pinned
    history.record(tmp_path, "run", "unpinned")
    assert not history.runs(tmp_path)["run"].pinned


def test_appends_of_several_processes_do_not_mix(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from pipeline import history\n"
        "for i in range(200): history.record(Path(sys.argv[1]), f'{sys.argv[2]}-{i}', 'started', "
        "overrides=['x' * 500], config={}, artifacts={})"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path), str(n)]) for n in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert len(history.runs(tmp_path)) == 600
