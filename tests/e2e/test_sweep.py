import subprocess

from pipeline.store.store import Store
from pipeline.store.verify import verify
from tests.e2e import crash, sweeping
from tests.e2e.conftest import CHEAP
from tests.processes import living, wait_until


def begin(store, *overrides, until):
    """Start a sweep; return its process and its stderr when all texts in `until` are in it."""
    errors = store.parent / "stderr"
    with errors.open("w") as stderr:
        line = sweeping.command(store, *CHEAP, *overrides)
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=stderr, text=True)
    wait_until(lambda: all(text in errors.read_text() for text in until), 120, process, errors.read_text)
    return process, errors


def test_shared_stages_run_once_and_a_killed_sweep_continues(without):
    store, swept = without("export", "report"), "report.title=one,two"
    process, _ = begin(store, swept, until=["report: started"])
    crash.kill_everything(process, store)
    assert list(verify(Store(store), deep=True)) == []
    before = sweeping.artifacts(store)

    again = sweeping.run(store, *CHEAP, swept)
    assert again.exit_code == 0, again.stderr
    assert [point["state"] for point in sweeping.points(store)] == ["finished"] * 2
    counted = sweeping.count(store)
    assert sum(sweeping.started(again.stderr).values()) == counted.total() - len(before)
    assert any(name.startswith("export/") for name in before)
    assert counted.pop("report") == 2 and set(counted.values()) == {1}  # the points share all others
    after = sweeping.artifacts(store)
    assert {name: after.get(name) for name in before} == before
    assert list(verify(Store(store), deep=True)) == []

    nothing = sweeping.run(store, *CHEAP, swept)
    assert nothing.exit_code == 0
    assert not sweeping.started(nothing.stderr)
    assert "2 points (2 finished)" in nothing.stdout


def test_signal_ends_all_points_without_tracebacks(without):
    store = without("evaluate")
    both = ["[0] evaluate: started", "[1] evaluate: started"]
    process, errors = begin(store, "evaluate.sample_prompts=8,4", "cards=2", until=both)
    process.terminate()
    assert process.wait(timeout=30) == 143
    wait_until(
        lambda: not living(store) and "repeat the command to resume" in errors.read_text(),
        describe=lambda: f"{living(store)} {errors.read_text()}",
    )
    assert "Traceback" not in errors.read_text()
