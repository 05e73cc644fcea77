from pipeline.config.load import load
from pipeline.store import history
from pipeline.ui import live

HOSTILE = "<script>alert(1)</script>"


def start_run(store, run, *overrides):
    config = load(overrides).plain()
    artifacts = {stage: f"{stage}/{'0' * 16}" for stage in ("sft", "grpo", "report")}
    history.record(store, run, "started", overrides=list(overrides), config=config, artifacts=artifacts)


def test_runs_and_sweeps_are_listed_newest_first(tmp_path):
    start_run(tmp_path, "one", "seed=1")
    start_run(tmp_path, "two", f"report.title={HOSTILE!r}")
    history.record(tmp_path, "one", "failed", stage="sft", message="out of memory")
    sweep = tmp_path / "sweeps" / "0123abcd"
    sweep.mkdir(parents=True)
    sweep.joinpath("sweep.json").write_text(
        '{"written": 0, "overrides": ["seed=0,1"], "points": [{"state": "finished", "result": '
        '{"accuracy_grpo": 0.5}}, {"state": "failed", "result": {}}]}'
    )
    text = live.overview(tmp_path)
    assert text.index("/run/two") < text.index("/run/one")
    assert "in sft" in text and "1 of 2" in text and "50.0 %" in text
    assert HOSTILE not in text


def test_a_failed_run_shows_its_partial_results(tmp_path):
    start_run(tmp_path, "one", "seed=1")
    history.record(tmp_path, "one", "failed", stage="grpo", message=HOSTILE)
    work = tmp_path / "sft" / ("0" * 16)
    work.mkdir(parents=True)
    (work / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 1.5}\n')
    page, final = live.report(tmp_path, "one")
    assert final is None
    assert "failed in grpo" in page and HOSTILE not in page
    assert "Warm-up loss" in page
    assert 'http-equiv="refresh"' not in page
