import pytest

from stages.base.errors import InputError
from stages.fetch.retry import LONGEST_S, TemporaryError, retrying
from tests.stages.fetch.settings import fetch


@pytest.fixture
def waits(monkeypatch):
    recorded = []
    monkeypatch.setattr("time.sleep", recorded.append)
    return recorded


def failing(times, error=None):
    left = [times]

    def action():
        left[0] -= 1
        if left[0] >= 0:
            raise error or TemporaryError("busy")
        return "done"

    return action


def test_waits_double_up_to_the_limit_and_vary(waits):
    assert retrying(failing(10), fetch(attempts=11, wait_s=1.0), "x") == "done"
    assert waits[0] == 0
    assert all(2**i <= wait <= 2**i + 1 for i, wait in enumerate(waits[1:6], start=1))
    assert waits[6:] == [LONGEST_S] * 4
    assert waits[1] != int(waits[1])


def test_the_servers_retry_after_is_respected(waits):
    retrying(failing(1, TemporaryError("busy", 7.0)), fetch(), "x")
    retrying(failing(1, TemporaryError("busy", 1e6)), fetch(), "x")
    assert waits == [7.0, LONGEST_S]


def test_it_gives_up_after_attempts_without_new_bytes(waits):
    sizes = iter([0, 10, 10, 20, 20, 30, 30, 30, 5, 30])
    with pytest.raises(InputError, match=r"the origin: busy \(3 tries\)"):
        retrying(failing(9), fetch(attempts=3), "the origin", lambda: next(sizes))
    assert len(waits) == 4  # three attempts with new bytes and one without; the next one ends it


def test_other_errors_are_not_retried(waits):
    with pytest.raises(InputError, match="x: no"):
        retrying(failing(1, InputError("x", None, "no")), fetch(), "x")
    assert not waits
