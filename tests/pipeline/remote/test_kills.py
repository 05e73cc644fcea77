"""kill -9 of pushing and pulling processes at random moments, several at once: nothing wrong is ever used."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipeline.store.remote import upkeep
from pipeline.store.remote.copies import find
from pipeline.store.remote.pull import pull
from pipeline.store.remote.push import is_there, push
from pipeline.store.store import Key
from tests.pipeline.artifacts import commit
from tests.pipeline.remote import kill
from tests.pipeline.remote.conftest import PART_BYTES
from tests.pipeline.remote.test_transfer import contents

KILLS = int(os.environ.get("KILLS", "200"))
LASTS_S = 0.8


def started(what, team, key):
    store = team.mine if what == "push" else team.theirs
    command = [sys.executable, "-m", kill.__name__, what, team.place.url, str(store.root)]
    command += [key.stage, key.fingerprint]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline() == b"begun\n"
    return process


@pytest.mark.parametrize("team", ["file", "rclone"], indirect=True)
def test_two_processes_that_pull_the_same_bring_it_once(team):
    key = Key("convert", "ab" * 32)
    commit(team.mine, key, {"large.bin": random.randbytes(20 * PART_BYTES)})
    push(team.place, team.mine, key)
    processes = [started("pull", team, key) for _ in range(2)]
    told = sorted(process.communicate(timeout=100)[0].decode().strip() for process in processes)
    assert told == ["False", "True"] and [process.returncode for process in processes] == [0, 0]
    assert team.theirs.problem(key, deep=True) is None


@pytest.mark.long
@pytest.mark.parametrize("team", ["file", "rclone"], indirect=True)
@pytest.mark.timeout(3600)
def test_processes_that_are_killed_leave_nothing_wrong(team):
    drawn = random.Random(20261122)
    kills, key, round_ = 0, Key("convert", "0" * 64), 0
    while kills < KILLS:
        round_ += 1
        key = Key("convert", f"{round_:016x}{0:048x}")
        files = {f"many/{n}": drawn.randbytes(drawn.randrange(5000)) for n in range(200)}
        large = {f"large-{n}.bin": drawn.randbytes(20 * PART_BYTES + n) for n in range(2)}
        commit(team.mine, key, {**large, **files})
        for what in ("push", "pull"):
            for _ in range(4):
                processes = [started(what, team, key) for _ in range(drawn.choice((1, 1, 2)))]
                time.sleep(drawn.uniform(0, LASTS_S))
                for process in processes:
                    kills += process.poll() is None
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                for copy in find(team.place, key):  # a copy that shows is whole
                    assert list(upkeep.verify(team.place, deep=True))[-1] is None, copy
                assert team.theirs.problem(key, deep=True) in (None, "never run")
            if what == "push":
                push(team.place, team.mine, key)
        pull(team.place, team.theirs, key)
        assert team.theirs.problem(key, deep=True) is None and is_there(team.place, key)
        assert contents(team.theirs.path(key)) == contents(team.mine.path(key))
    assert not any(upkeep.verify(team.place, deep=True))
    assert not list((team.theirs.root / ".quarantine").glob("*"))
    print(f"{kills} processes killed in {round_} rounds", Path(team.place.url).name)
