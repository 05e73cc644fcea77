import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from pipeline.store import Store
from pipeline.verify import verify
from tests.e2e import crash
from tests.e2e.conftest import CHEAP, Finished, manifests

SWEPT = ["report.title=one,two", "evaluate.sample_prompts=8,4"]


def command(store: Path, *overrides: str) -> list[str]:
    return [sys.executable, "-m", "pipeline", "-m", f"store={store}", *CHEAP, *overrides]


def sweep(store: Path, *overrides: str) -> Finished:
    line = command(store, *overrides)
    done = subprocess.run(line, capture_output=True, text=True, timeout=500, cwd=store.parent)
    return Finished(done.returncode, done.stdout, done.stderr)


def started(stderr: str) -> list[str]:
    """Stages that ran, without the number of the point that told of them."""
    return sorted(
        line.split("] ")[1].split(":")[0] for line in stderr.splitlines() if line.endswith(": started")
    )


def points(store: Path) -> list[dict[str, object]]:
    (file,) = store.glob("sweeps/*/sweep.json")
    return list(json.loads(file.read_text())["points"])


def test_what_points_share_runs_once_and_a_killed_sweep_goes_on(
    finished: tuple[Path, Finished], tmp_path: Path
) -> None:
    store = Path(shutil.copytree(finished[0], tmp_path / "store", symlinks=True))
    for stage in ("tokenize", "evaluate", "report"):
        shutil.rmtree(store / stage)
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr:
        process = subprocess.Popen(
            command(store, *SWEPT), stdout=subprocess.DEVNULL, stderr=stderr, text=True
        )
    _wait_for(process, errors, "evaluate: started")
    crash.kill_everything(process, store)
    assert list(verify(Store(store), deep=True)) == []
    before = manifests(store)

    again = sweep(store, *SWEPT)
    assert again.exit_code == 0, again.stderr
    assert [point["state"] for point in points(store)] == ["finished"] * 4
    # 2 evaluations for 4 points, and a report for each; tokenize was done before the kill.
    assert started(again.stderr) == ["evaluate"] * 2 + ["report"] * 4
    assert manifests(store)["tokenize"] == before["tokenize"]
    assert list(verify(Store(store), deep=True)) == []

    nothing = sweep(store, *SWEPT)
    assert nothing.exit_code == 0
    assert started(nothing.stderr) == []
    assert "4 points (4 finished)" in nothing.stdout


def test_a_signal_ends_every_point_at_once_and_without_noise(
    finished: tuple[Path, Finished], tmp_path: Path
) -> None:
    store = Path(shutil.copytree(finished[0], tmp_path / "store", symlinks=True))
    shutil.rmtree(store / "evaluate")
    errors = tmp_path / "stderr"
    with errors.open("w") as stderr:
        line = command(store, "evaluate.sample_prompts=8,4", "cards=2")
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=stderr, text=True)
    _wait_for(process, errors, "[0] evaluate: started")
    _wait_for(process, errors, "[1] evaluate: started")
    began = time.monotonic()
    process.terminate()
    assert process.wait(timeout=30) == 143
    while crash.jobs_of(store) or "type the same command to go on" not in errors.read_text():
        assert time.monotonic() - began < 10, (crash.jobs_of(store), errors.read_text())
        time.sleep(0.1)
    assert "Traceback" not in errors.read_text()


def _wait_for(process: subprocess.Popen[str], errors: Path, text: str) -> None:
    while text not in errors.read_text():
        assert process.poll() is None, errors.read_text()
        time.sleep(0.02)
