"""How long a remote is waited for, and that one warning is enough."""

import os
import threading

import pytest

from pipeline.config.remote import RemoteConfig
from pipeline.errors import RemoteError
from pipeline.run.sharing import Connection
from pipeline.store.remote import remote as requests
from pipeline.store.remote.remote import Remote


@pytest.mark.parametrize(
    ("error", "tries"),
    [
        (TimeoutError("no answer"), requests.TIMEOUTS),
        (OSError("no answer"), requests.TRIES),
        (PermissionError("no answer"), 1),
    ],
)
def test_what_may_pass_is_tried_again(error, tries, monkeypatch):
    asked = []

    def fail(*ignored, **options):
        asked.append(ignored)
        raise error

    monkeypatch.setattr(Remote, "_run", fail)
    with pytest.raises(RemoteError, match="no answer"):
        Remote("file:///nowhere").read("x")
    assert len(asked) == tries


def test_after_one_request_has_failed_no_other_is_begun():
    begun, barrier = [], threading.Barrier(8)

    def fail(number):
        begun.append(number)
        barrier.wait(30)
        raise RemoteError(f"{number} failed")

    with pytest.raises(RemoteError, match="failed"):
        Remote("file:///nowhere").map(fail, range(1000))
    assert len(begun) == 8


def test_an_interrupt_waits_for_no_answer():
    answer, asked = threading.Event(), []

    def wait(number):
        asked.append(number)
        answer.wait(60)

    def interrupt(results):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Remote("file:///nowhere").map(wait, range(100), interrupt)
    answer.set()
    assert len(asked) == 8


def test_what_a_fork_has_lost_all_have_lost(capfd):
    connection = Connection(RemoteConfig("file:///nowhere", "on", (), None, 60.0, 14.0))
    assert not connection.lost
    child = os.fork()
    if child == 0:
        connection.lose(RemoteError("silent"))
        os._exit(0)
    os.waitpid(child, 0)
    connection.lose(RemoteError("silent"))
    assert connection.lost
    assert capfd.readouterr().err == "warning: remote: silent; this run goes on without it\n"
