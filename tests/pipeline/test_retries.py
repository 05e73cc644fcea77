"""launcher.retries: failures that another attempt may pass start a stage again, with the reason."""

from pathlib import Path

import pytest

from launch.errors import LaunchError, ProcessFailed
from pipeline.cli import main
from pipeline.store import history
from tests.pipeline.artifacts import replace_stages, required_of

KILLED = ProcessFailed(-9, Path("stage.log"), ["step 3"])
HUNG = LaunchError("hung: no worker wrote a line for 60 s")
REPORTED = ProcessFailed(1, Path("stage.log"), ["error: rows.jsonl:3: is no JSON"])


@pytest.fixture
def attempts(monkeypatch):
    """Let the first attempts at stage strategy fail; return the list of failures, and the stages started."""
    failures, started = [], []

    def work(spec, _):
        started.append(spec["stage"])
        if spec["stage"] == "strategy" and failures:
            raise failures.pop(0)
        for name, content in required_of(spec).items():
            file = Path(spec["output"]) / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    replace_stages(monkeypatch, work)
    return failures, started


def run(tmp_path, retries):
    return main(["run", "--only=strategy", f"store={tmp_path}", f"launcher.retries={retries}"])


@pytest.mark.parametrize(
    ("failure", "reason"), [(KILLED, "exit code -9"), (HUNG, "hung: no worker wrote a line for 60 s")]
)
def test_a_killed_stage_is_started_again_with_the_reason(failure, reason, tmp_path, attempts, capsys):
    failures, started = attempts
    failures += [failure, failure]
    assert run(tmp_path, 2) == 0
    assert started == ["strategy"] * 3
    shown = capsys.readouterr().err
    for number in (1, 2):
        assert f"strategy: warning: {reason}; log " in shown and f"started again ({number} of 2)" in shown
    (recorded,) = history.runs(tmp_path).values()
    assert recorded.state == "finished"


def test_the_last_failure_ends_the_run(tmp_path, attempts, capsys):
    failures, started = attempts
    failures += [KILLED, HUNG]
    assert run(tmp_path, 1) == 1
    assert started == ["strategy"] * 2
    assert "stage strategy failed: hung" in capsys.readouterr().err


def test_an_error_that_the_stage_reports_is_not_repeated(tmp_path, attempts):
    failures, started = attempts
    failures.append(REPORTED)
    assert run(tmp_path, 5) == 1
    assert started == ["strategy"]


def test_without_retries_nothing_is_repeated(tmp_path, attempts):
    failures, started = attempts
    failures.append(KILLED)
    assert run(tmp_path, 0) == 1
    assert started == ["strategy"]
