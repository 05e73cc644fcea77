"""kill -9 of pushing and pulling processes at random moments, several at once: nothing wrong is ever used."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from pipeline.store.remote.copies import directories, from_store, missing
from pipeline.store.remote.transfer import pull, push
from pipeline.store.store import Key, Store
from tests.pipeline.artifacts import commit
from tests.pipeline.remote.conftest import contents

KILLS = int(os.environ.get("KILLS", "200"))
LARGE = 20 << 16
PROGRAM = """
import sys
from pathlib import Path
from pipeline.store.remote.remote import Remote
from pipeline.store.remote.transfer import pull, push
from pipeline.store.store import Key, Store
what, url, store, *key = sys.argv[1:]
print("begun", flush=True)
print(bool({"push": push, "pull": pull}[what](Remote(url), Store(Path(store)), Key(*key))))
"""


def started(what, team, key):
    store = team.first if what == "push" else team.second
    arguments = [what, team.remote.url, str(store.root), key.stage, key.fingerprint]
    command = [sys.executable, "-c", PROGRAM, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    return process


@pytest.mark.parametrize("team", ["file", "rclone"], indirect=True)
def test_concurrent_pulls_of_an_artifact_pull_it_once(team):
    key = Key("convert", "ab" * 32)
    commit(team.first, key, {"large.bin": random.randbytes(LARGE)})
    push(team.remote, team.first, key)
    processes = [started("pull", team, key) for _ in range(2)]
    lines = sorted(process.communicate(timeout=100)[0].decode().strip() for process in processes)
    assert lines == ["False", "True"] and [process.returncode for process in processes] == [0, 0]
    assert team.second.problem(key, deep=True) is None


@pytest.mark.long
@pytest.mark.parametrize("team", ["file", "rclone"], indirect=True)
@pytest.mark.timeout(3600)
def test_killed_pushes_and_pulls_leave_nothing_wrong(team):
    drawn = random.Random(20261122)
    kills, key, round_ = 0, Key("convert", "0" * 64), 0
    limits_s = {}
    while kills < KILLS:
        round_ += 1
        key = Key("convert", f"{round_:016x}{0:048x}")
        files = {f"many/{n}": drawn.randbytes(drawn.randrange(5000)) for n in range(200)}
        large = {f"large-{n}.bin": drawn.randbytes(LARGE + n) for n in range(2)}
        commit(team.first, key, {**large, **files})
        if not limits_s:  # so that kills hit every moment, however fast the machine is
            for what in ("push", "pull"):
                process, began = started(what, team, key), time.monotonic()
                process.wait()
                limits_s[what] = time.monotonic() - began
            continue
        for what, limit_s in limits_s.items():
            for _ in range(4):
                processes = [started(what, team, key) for _ in range(drawn.choice((1, 1, 2)))]
                time.sleep(drawn.uniform(0, limit_s))
                for process in processes:
                    kills += process.poll() is None
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                for copy in team.copies(key):  # a copy with a manifest is complete
                    assert not missing(team.remote, copy)
                assert team.second.problem(key, deep=True) in (None, "never run")
            if what == "push":
                push(team.remote, team.first, key)
        pull(team.remote, team.second, key)
        assert team.second.problem(key, deep=True) is None
        assert not missing(team.remote, from_store(team.first, key)[0])
        assert contents(team.second.path(key)) == contents(team.first.path(key))
    third = Store(team.first.root.with_name("third"))
    assert all(pull(team.remote, third, key) for key in directories(team.remote))
    assert len(directories(team.remote)) == round_
    assert not list((team.second.root / ".quarantine").glob("*"))
    print(f"{kills} processes killed in {round_} rounds")
