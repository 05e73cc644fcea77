"""Luigi's central scheduler, a real luigid on loopback, and luigi.cfg."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

import pytest

from pipeline.store import history
from tests.e2e import crash
from tests.e2e.conftest import CHEAP, Finished, command, damage, finish, luigi
from tests.pipeline.remote import servers
from tests.processes import unanswered_download

LUIGID = """
[resources]
cards = 2
[scheduler]
worker_disconnect_delay = 3
prune_on_get_work = true
"""


@pytest.fixture
def luigid(tmp_path, monkeypatch):
    """A real luigid with two cards; the value is its port."""
    port, home = servers.free_port(), tmp_path / "luigid"
    home.mkdir()
    (home / "luigi.cfg").write_text(LUIGID)
    program = [str(Path(sys.executable).parent / "luigid"), "--address", "127.0.0.1", "--port", str(port)]
    with monkeypatch.context() as there:
        there.chdir(home)
        with servers.started([*program, "--state-path", str(home / "state")], port):
            there.undo()
            yield port


def url(port):
    return ["--scheduler-url", f"http://127.0.0.1:{port}"]


def known_tasks(port):
    """Return the parameters of the finished tasks that luigid shows."""
    data = urllib.parse.urlencode({"data": json.dumps({"status": "DONE", "upstream_status": ""})}).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/task_list", data, timeout=30) as answer:
        return [task["params"] for task in json.load(answer)["response"].values()]


def together(*lines):
    """Run several commands at the same time to their ends."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(line, **options) for line in lines]
    outputs = [process.communicate(timeout=500) for process in processes]
    return [Finished(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def test_processes_with_one_configuration_build_it_once(without, luigid):
    store = without("evaluate", "export", "report")
    done = together(*[[*command(store), *url(luigid)] for _ in range(2)])
    assert [one.exit_code for one in done] == [0, 0], done
    assert sorted(done[0].started + done[1].started) == ["evaluate", "export", "report"]
    first, second = (one.result for one in done)
    assert first.pop("run") != second.pop("run") and first == second


def test_processes_with_different_stores_share_the_scheduler(without, luigid, tmp_path):
    stores = [without("report", "export"), tmp_path / "other"]
    shutil.copytree(stores[0], stores[1], symlinks=True)
    lines = [
        [*command(store), *url(luigid), *more]
        for store, more in zip(stores, ([], ["--workers", "2"]), strict=True)
    ]
    done = together(*lines)
    assert [one.exit_code for one in done] == [0, 0], done
    assert [sorted(one.started) for one in done] == [["export", "report"]] * 2
    shown = [task for task in known_tasks(luigid) if task.get("stage") == "report"]
    assert {task["store"] for task in shown} == set(map(str, stores))


@pytest.mark.parametrize("workers", [[], pytest.param(["--workers", "2"], marks=pytest.mark.long)])
def test_a_killed_process_blocks_no_other(without, luigid, workers):
    """The scheduler counts its cards as occupied until it misses it, so the next process waits."""
    store = without("grpo", "evaluate", "export", "report")
    line = [*command(store), *url(luigid), *workers]
    crash.kill_everything(crash.start(store, "grpo", sign=".logs/grpo-*/worker_1.log", line=line), store)
    done = finish(line, store.parent, code=0)
    assert done.started[0] == "grpo" and done.result["run"] and not damage(store)


def test_a_failed_stage_ends_a_run_that_would_wait(without, luigid):
    store = without("grpo", "evaluate", "export", "report")
    done = finish([*command(store, "launcher.timeout_s=1"), *url(luigid)], store.parent, 120, code=1)
    assert "raise launcher.timeout_s" in done.stderr


def test_more_cards_than_the_scheduler_has_are_refused(tmp_path, luigid):
    line = [*luigi(tmp_path / "store", *CHEAP, "layout=dp4_mp1_pp1"), *url(luigid)]
    done = finish(line, tmp_path, code=2)
    assert "cards=4: " in done.stderr and done.stderr.count("error: ") == 1
    assert not (tmp_path / "store" / "runs.jsonl").exists()


@pytest.mark.parametrize("keys", ["default-scheduler-url=URL", "default-scheduler-host=HOST\nPORT", "PORT"])
def test_luigi_cfg_names_the_scheduler(keys, without, luigid, tmp_path):
    address = {"URL": f"http://127.0.0.1:{luigid}", "HOST": "127.0.0.1"}
    for name, value in {**address, "PORT": f"default-scheduler-port={luigid}"}.items():
        keys = keys.replace(name, value)
    (tmp_path / "luigi.cfg").write_text(f"[core]\n{keys}\n")
    store = without("report")
    assert finish(command(store), tmp_path, code=0).started == ["report"]
    assert {"report"} <= {task.get("stage") for task in known_tasks(luigid)}


@pytest.mark.parametrize(
    "key", ["keep_alive=true", "timeout=1", "task_limit=1", "force_multiprocessing=true"]
)
def test_grpoflow_ignores_the_section_worker(key, tmp_path):
    (tmp_path / "luigi.cfg").write_text(f"[worker]\n{key}\n")
    program = [sys.executable, "-m", "pipeline.cli", "run", "--only", "fetch_dataset", f"store={tmp_path}"]
    finish([*program, *CHEAP], tmp_path, code=0)
    with unanswered_download() as overrides:
        failing = [*program, *overrides, "launcher.timeout_s=3", "layout=dp1_mp1_pp1"]
        done = finish(failing, tmp_path, timeout=60, code=1)
    assert "raise launcher.timeout_s" in done.stderr and "luigi" not in done.stderr.lower()


def test_grpoflow_names_a_luigi_cfg_that_luigi_cannot_read(tmp_path):
    (tmp_path / "luigi.cfg").write_text("[core\nworkers=2\n")
    program = [sys.executable, "-m", "pipeline.cli", "run", "--only", "fetch", f"store={tmp_path / 'store'}"]
    done = finish([*program, *CHEAP], tmp_path, code=2)
    assert done.stderr.startswith("error: luigi.cfg: ") and len(done.stderr.splitlines()) == 1


def test_grpoflow_needs_no_scheduler_that_luigi_cfg_names(tmp_path):
    (tmp_path / "luigi.cfg").write_text("[core]\ndefault-scheduler-url=http://127.0.0.1:9\n")
    program = [sys.executable, "-m", "pipeline.cli", "run", "--only", "fetch", f"store={tmp_path / 'store'}"]
    assert "luigi" not in finish([*program, *CHEAP], tmp_path, code=0).stderr.lower()


@pytest.mark.parametrize(
    ("key", "code", "message"),
    [
        ("timeout=3", 1, "error: fetch_dataset: ended after 3 s: [worker] timeout"),
        ("task_limit=1", 2, "error: [worker] task_limit=1: "),
        ("keep_alive=true", 1, "raise launcher.timeout_s"),
    ],
)
def test_luigi_obeys_the_section_worker_and_says_so(key, code, message, tmp_path):
    (tmp_path / "luigi.cfg").write_text(f"[worker]\n{key}\n")
    with unanswered_download() as overrides:
        values = [*overrides, "launcher.timeout_s=6", "layout=dp1_mp1_pp1"]
        done = finish(luigi(tmp_path / "store", *values, task="FetchDataset"), tmp_path, 100, code=code)
    assert message in done.stderr


def test_luigi_asks_for_stages_in_parallel(tmp_path):
    line = [*luigi(tmp_path / "store", *CHEAP, task="Strategy"), "--parallel-scheduling"]
    for number in (1, 2):  # the second run finds everything cached
        done = finish(line, tmp_path, code=0)
        runs = list(history.runs(tmp_path / "store"))
        assert done.stdout.count(" run=") == 1 and f" run={runs[-1]} " in done.stdout
        assert len(runs) == number


@pytest.mark.parametrize("task", ["RunTask --run-id x", "RunTask", "StageTask --stage grpo"])
def test_a_part_of_a_run_is_refused_with_a_message(task, tmp_path):
    program = [str(Path(sys.executable).parent / "luigi"), "--module", "pipeline", *task.split()]
    done = finish(program, tmp_path, code=2)
    assert done.stderr.startswith("error: ") and "RunGRPO" in done.stderr
