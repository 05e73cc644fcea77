"""The progress of a run in a terminal and in a pipe: its rate, and the time left of the whole run."""

import io
import sys
import time

import pytest

from pipeline.plan.explain import expected_durations
from pipeline.plan.target import ALL_STAGES
from pipeline.run.progress import Display, left_of_stage, remaining
from pipeline.run.run import begin
from pipeline.store import history
from tests.pipeline.artifacts import complete

MINUTE = 60.0


class Screen(io.StringIO):
    """Terminal of 80 columns."""

    def isatty(self):
        return True

    @property
    def last_line(self):
        return self.getvalue().split("\r\x1b[K")[-1]


@pytest.fixture
def terminal(monkeypatch):
    """Make stderr a terminal; pytest replaces stderr before each test begins, so call it there."""

    def install():
        screen = Screen()
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setenv("COLUMNS", "80")
        return screen

    return install


def step(number, total=10, message="", unit="steps"):
    return {"step": number, "total": total, "unit": unit, "message": message, "time_s": 1000.0 + 2 * number}


def test_a_status_line_has_the_rate_and_the_time_left_of_the_run(terminal, monkeypatch):
    monkeypatch.setattr(time, "time", lambda: 1008.0)
    screen, display = terminal(), Display()
    display.expect({"grpo": 100.0, "evaluate": MINUTE, "report": 2.0}, lambda: ["grpo", "evaluate", "report"])
    display.start("grpo")
    display.progress("grpo", step(1))
    assert screen.last_line == "grpo: 1/10 steps, run: 2 min 42 s left", "no pace yet: the expected 100 s"
    for number in (2, 3, 4):
        display.progress("grpo", step(number, message="reward 0.500"))
    assert screen.last_line == "grpo: 4/10 steps, 2.0 s per step, run: 1 min 14 s left, reward 0.500"


def test_stages_that_never_ran_make_it_a_lower_bound(terminal):
    screen, display = terminal(), Display()
    display.expect({"report": 5.0}, lambda: ["grpo", "evaluate", "report"])
    display.start("grpo")
    display.progress("grpo", step(1))
    assert screen.last_line.endswith("run: at least 5.0 s left")


def test_parts_that_do_not_fit_are_left_out_whole(terminal):
    screen, display = terminal(), Display()
    display.start("grpo")
    display.progress("grpo", step(1, message="a message that is much longer than the room that is left " * 2))
    assert screen.last_line == "grpo: 1/10 steps"


def test_a_pipe_gets_whole_lines(capsys):
    display = Display()
    display.progress("fetch", {"step": 10, "total": 20, "unit": "B", "message": "x" * 100})
    assert capsys.readouterr().err == f"fetch: 10 bytes of 20 bytes, {'x' * 100}\n"


@pytest.mark.parametrize(
    ("line", "pace", "expected", "left"),
    [
        (step(4), 2.0, None, 12.0), (step(10), 2.0, 99.0, 0.0), (step(4), None, 30.0, 23.0),
        (step(4), None, None, None), ({}, 2.0, 5.0, 0.0), ({"step": 1}, 2.0, 10.0, 3.0),
    ],
)  # fmt: skip
def test_the_time_left_of_a_stage_is_by_its_pace_else_by_earlier_runs(
    line, pace, expected, left, monkeypatch
):
    monkeypatch.setattr(time, "time", lambda: line.get("time_s", 0.0))
    assert left_of_stage(line, pace, expected, elapsed_s=7.0) == left


def test_the_time_left_of_a_run_adds_what_is_known():
    assert remaining({}, {"grpo": None}, ["report"]) is None
    known = remaining({"evaluate": 5.0, "report": 3.0}, {"grpo": 10.0}, ["evaluate", "report"])
    assert known is not None and (known.seconds, known.is_complete) == (18.0, True)
    part = remaining({"report": 3.0}, {"grpo": None}, ["report"])
    assert part is not None and (part.seconds, part.is_complete) == (3.0, False)


def test_a_run_records_the_expected_durations_of_what_it_builds(tmp_path):
    _, store = complete([f"store={tmp_path}", "train.steps=7"], started=100.0, ended=107.5)
    run = begin([f"store={tmp_path}", "train.steps=14"], None, ALL_STAGES)
    recorded = history.find(tmp_path, run.id).expected_s
    assert [*recorded] == [spec.name for spec in run.missing()] and "fetch" not in recorded
    assert recorded["grpo"] == pytest.approx(15.0) and recorded["evaluate"] == pytest.approx(7.5)
    assert expected_durations(run.plan, store, ["fetch"]) == {"fetch": 7.5}
