import pytest

from stages.base.errors import InputError
from stages.fetch.retry import Passing, retrying
from tests.stages.fetch.settings import fetch


def failing(times, error=None):
    left = [times]

    def action():
        left[0] -= 1
        if left[0] >= 0:
            raise error or Passing("busy")
        return "done"

    return action


def test_waits_double_and_vary_by_half(capsys):
    waits = []
    assert retrying(failing(5), fetch(attempts=6, wait_s=1.0), "x", sleep=waits.append) == "done"
    assert len(waits) == 5
    assert all(0.5 * 2**i <= wait <= 1.5 * 2**i for i, wait in enumerate(waits))
    assert [line.split(" in ")[0] for line in capsys.readouterr().out.splitlines()] == [
        f"retry {i} of 5" for i in range(1, 6)
    ]
    more = []
    retrying(failing(5), fetch(attempts=6, wait_s=1.0), "x", sleep=more.append)
    assert waits != more


def test_no_wait_is_longer_than_a_minute_and_a_half():
    waits = []
    retrying(failing(20), fetch(attempts=30, wait_s=1.0), "x", sleep=waits.append)
    assert max(waits) <= 90


def test_what_the_server_asks_for_is_waited():
    waits = []
    retrying(failing(1, Passing("busy", 7.0)), fetch(), "x", sleep=waits.append)
    assert waits == [7.0]


def test_it_gives_up_with_the_reason_and_the_number_of_tries():
    with pytest.raises(InputError, match=r"the origin: busy \(3 tries\).*what has arrived is kept"):
        retrying(failing(9), fetch(attempts=3), "the origin", sleep=lambda s: None)


def test_new_bytes_start_the_count_afresh_but_only_new_ones():
    sizes = iter([0, 10, 20, 30, 30, 5, 30])
    waits = []
    with pytest.raises(InputError, match="3 tries"):
        retrying(failing(9), fetch(attempts=3), "x", lambda: next(sizes), waits.append)
    assert len(waits) == 4  # three that brought bytes; then one without; a restart to 5 brings none either


def test_other_errors_are_not_tried_again():
    calls = []

    def action():
        calls.append(1)
        raise InputError("x", None, "no")

    with pytest.raises(InputError, match="x: no"):
        retrying(action, fetch(), "x")
    assert len(calls) == 1
