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
from tests.pipeline.remote.conftest import PART_BYTES, Team
from tests.pipeline.remote.test_transfer import contents

KILLS = int(os.environ.get("KILLS", "200"))
LASTS_S = 1.2


def started(what: str, team: Team, key: Key) -> subprocess.Popen[bytes]:
    store = team.mine if what == "push" else team.theirs
    command = [sys.executable, "-m", kill.__name__, what, team.place.url, str(store.root)]
    return subprocess.Popen([*command, key.stage, key.fingerprint], stderr=subprocess.DEVNULL)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_processes_that_are_killed_leave_nothing_wrong(file_team: Team) -> None:
    drawn = random.Random(20261122)
    kills, key, round_ = 0, Key("convert", "0" * 64), 0
    while kills < KILLS:
        round_ += 1
        key = Key("convert", f"{round_:016x}{0:048x}")
        files = {f"many/{n}": drawn.randbytes(drawn.randrange(5000)) for n in range(200)}
        commit(file_team.mine, key, {"large.bin": drawn.randbytes(40 * PART_BYTES), **files})
        for what in ("push", "pull"):
            for _ in range(4):
                processes = [started(what, file_team, key) for _ in range(drawn.choice((1, 1, 2)))]
                time.sleep(drawn.uniform(0.1, LASTS_S))
                for process in processes:
                    kills += process.poll() is None
                    process.send_signal(signal.SIGKILL)
                    process.wait()
                for copy in find(file_team.place, key):  # a copy that shows is whole
                    assert list(upkeep.verify(file_team.place, deep=True))[-1] is None, copy
                assert file_team.theirs.problem(key, deep=True) in (None, "never run")
            if what == "push":
                push(file_team.place, file_team.mine, key)
        pull(file_team.place, file_team.theirs, key)
        assert file_team.theirs.problem(key, deep=True) is None and is_there(file_team.place, key)
        assert contents(file_team.theirs.path(key)) == contents(file_team.mine.path(key))
    assert not any(upkeep.verify(file_team.place, deep=True))
    assert not list((file_team.theirs.root / ".quarantine").glob("*"))
    print(f"{kills} processes killed in {round_} rounds", Path(file_team.place.url).name)
