"""How long a remote is waited for, and who learns that it does not answer."""

import os
import threading

import pytest

from pipeline.config.remote import RemoteConfig
from pipeline.errors import RemoteError
from pipeline.run import pushing
from pipeline.run.pushing import Pushing
from pipeline.run.sharing import Connection
from pipeline.store.remote import asking
from pipeline.store.remote.__main__ import Pusher
from pipeline.store.remote.place import Place
from pipeline.store.remote.push import is_there
from tests.pipeline.remote.conftest import KEY, some_artifact


class Clock:
    """A clock that a silent server moves."""

    def __init__(self):
        self.now, self.slept = 0.0, 0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.slept += 1


@pytest.mark.parametrize(
    ("takes_s", "tries"), [(0.0, asking.TRIES), (60.0, asking.SILENT_TRIES), (10.0, asking.TRIES)]
)
def test_what_is_silent_is_asked_twice_and_what_fails_at_once_more_often(takes_s, tries, monkeypatch):
    clock, asked = Clock(), 0

    def times_out(*ignored, **named):
        nonlocal asked
        asked, clock.now = asked + 1, clock.now + takes_s
        raise TimeoutError("no answer")

    monkeypatch.setattr(asking, "time", clock)
    monkeypatch.setattr(Place, "_call", times_out)
    with pytest.raises(RemoteError, match="no answer"):
        Place("file:///nowhere", timeout_s=60.0).read("x")
    assert (asked, clock.slept) == (tries, tries - 1)


def test_who_waits_is_told_so_once(monkeypatch, tmp_path):
    monkeypatch.setattr(asking, "TELL_S", 0.0)
    told, heard = [], threading.Event()
    place = Place(f"file://{tmp_path}")
    place.tell(lambda text: (told.append(text), heard.set())[0])
    real = Place._call
    monkeypatch.setattr(Place, "_call", lambda *values, **named: heard.wait(30) and real(*values, **named))
    assert place.list("x") == {} == place.list("y")
    assert told == [f"file://{tmp_path} has not answered yet, it is waited for"]


def test_a_run_that_lost_its_remote_asks_for_it_once_more_at_its_end(file_team, monkeypatch, capsys):
    some_artifact(file_team.mine)
    pusher, asked, real = Pusher(file_team.place, file_team.mine), [], Place.list

    def silent(place, path):
        asked.append(path)
        raise RemoteError("Read timeout")

    monkeypatch.setattr(Place, "list", silent)
    pusher.hear({"run": "a", "keys": [[KEY.stage, KEY.fingerprint]], "lost": True})
    pusher.look()
    assert asked == []
    pusher.hear({"end": "a"})
    assert len(asked) == 1
    assert "`grpoflow push a` brings it later" in capsys.readouterr().out
    monkeypatch.setattr(Place, "list", real)
    pusher.hear({"run": "b", "keys": [[KEY.stage, KEY.fingerprint]], "lost": False})
    pusher.hear({"end": "b"})
    assert is_there(file_team.place, KEY)


def test_after_one_request_has_failed_no_other_is_begun():
    place, asked, begun = Place("file:///nowhere"), [], threading.Barrier(4)

    def fails(number):
        asked.append(number)
        begun.wait(30)
        raise RemoteError(f"{number} failed")

    assert place.workers == begun.parties
    with pytest.raises(RemoteError, match="0 failed"):
        place.map(fails, range(100))
    assert sorted(asked) == [0, 1, 2, 3]


def test_an_interrupt_waits_for_no_answer():
    answer = threading.Event()
    with pytest.raises(KeyboardInterrupt), Place("file:///nowhere").threads() as pool:
        under_way, later = [pool.submit(answer.wait, 60) for _ in range(4)], pool.submit(print)
        raise KeyboardInterrupt
    assert later.cancelled() and not any(future.done() for future in under_way)
    answer.set()


def test_what_a_fork_has_lost_all_have_lost(capfd):
    connection = Connection(RemoteConfig("file:///nowhere", "on", (), None, 60.0))
    assert not connection.lost
    child = os.fork()
    if child == 0:
        connection.lose(RemoteError("silent"))
        os._exit(0)
    os.waitpid(child, 0)
    connection.lose(RemoteError("silent"))
    assert connection.lost
    assert capfd.readouterr().err == "warning: remote: silent; this run goes on without it\n"


def test_no_fork_is_made_while_a_thread_writes_to_the_terminal(monkeypatch):
    """The fork would wait for ever for the lock that the thread holds."""
    inside, leave = threading.Event(), threading.Event()
    terminal = threading.Lock()

    class Display:
        def say(self, text, is_own):
            with terminal:
                inside.set()
                leave.wait(0.3)

    class Process:
        stdout = ('{"say": "pushed", "run": "run"}',)

    listening = Pushing.__new__(Pushing)
    listening._process, listening._under_way = Process(), {"run": Display()}  # type: ignore[assignment]
    listening._settled = threading.Condition()
    thread = threading.Thread(target=listening._listen)
    thread.start()
    assert inside.wait(30)
    child = os.fork()
    if child == 0:
        os._exit(0 if terminal.acquire(blocking=False) and not pushing._saying.locked() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    thread.join()
    assert not pushing._saying.locked()
