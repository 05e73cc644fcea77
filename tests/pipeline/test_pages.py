"""Pages of runs and sweeps: results, and hostile text from overrides and messages."""

import html
import json
import re
import shlex
from dataclasses import asdict

from pipeline.config.load import load
from pipeline.store import history
from pipeline.sweep.page import page
from pipeline.sweep.points import Point
from pipeline.ui import live
from tests.stages.fetch.settings import write_lines

SCRIPT = "<script>alert(1)</script>"
HOSTILE = f"report.title='a b; $(rm -rf ~) {SCRIPT} \"q\"'"


def test_runs_and_sweeps_are_listed_newest_first_and_a_failed_run_shows_its_results(tmp_path):
    artifacts = {stage: f"{stage}/{'0' * 16}" for stage in ("sft", "grpo", "report")}
    for run, override in (("one", "seed=1"), ("two", f"report.title={SCRIPT!r}")):
        values = {"overrides": [override], "config": load([override]).plain(), "artifacts": artifacts}
        history.record(tmp_path, run, "started", **values)
    history.record(tmp_path, "one", "failed", stage="grpo", message=SCRIPT)
    sft, sweep = tmp_path / "sft" / ("0" * 16), tmp_path / "sweeps" / "0123abcd"
    for directory in (sft, sweep):
        directory.mkdir(parents=True)
    write_lines(sft / "metrics.jsonl", {"step": 1, "loss": 2.5}, {"step": 2, "loss": 1.5})
    points = [{"state": "finished", "result": {"accuracy_grpo": 0.5}}]
    points += [{"state": state, "result": {}} for state in ("failed", "stopped early", "stopped early")]
    values = {"written": 0, "overrides": ["seed=0,1"], "points": points}
    (sweep / "sweep.json").write_text(json.dumps(values))
    overview = live.overview(tmp_path)
    assert overview.index("/run/two") < overview.index("/run/one")
    row = overview[overview.index("/sweeps/0123abcd/") :].partition("</tr>")[0]
    assert re.findall(r">([^<>]+)<", row) == [
        "0123abcd", "1 of 4", "1 failed", "2 stopped early", "50.0 %", "1 January 1970, 00:00 UTC",
        "seed=0,1",
    ]  # fmt: skip
    report, final = live.report(tmp_path, "one")
    assert final is None and "Warm-up loss" in report and 'http-equiv="refresh"' not in report
    assert SCRIPT not in overview + report


def test_the_page_of_a_sweep_shows_each_point_and_a_command_that_can_be_pasted(tmp_path):
    (tmp_path / "grpo/aa").mkdir(parents=True)
    rows = [{"step": step, "reward": step / 4} for step in (1, 2, 3)]
    write_lines(tmp_path / "grpo/aa/metrics.jsonl", *rows)
    (tmp_path / "grpo/aa/manifest.json").write_text(json.dumps({"started": 10.0, "ended": 15.0}))
    points = [
        Point(0, ["store=s", "seed=0"], "finished", result={"accuracy_sft": 0.2, "accuracy_grpo": 0.5},
              artifacts={"grpo": "grpo/aa"}),
        Point(1, ["store=s", "seed=1", HOSTILE], "finished",
              result={"accuracy_sft": 0.2, "accuracy_grpo": 0.75}),
        Point(2, ["store=s", "seed=2"], "failed", "stage grpo failed", artifacts={"grpo": "grpo/never"}),
    ]  # fmt: skip
    values = {"id": "0123abcd", "overrides": ["seed=0,1"], "started": 12.0, "written": 20.0}
    written = {**values, "points": [asdict(point) for point in points]}
    source = page(written, points, tmp_path, tmp_path / "my conf")
    assert "Best: point 1" in source and "75.0 %" in source and "stage grpo failed" in source
    assert "Reward. 0: seed=0: 0.250 at step 1" in source and SCRIPT not in source
    results = re.search(r'<pre id="reproduce" class="command">(.*?)</pre>', source, re.DOTALL)
    assert results is not None
    command = ["grpoflow", "run", "--config-dir", str(tmp_path / "my conf"), "store=s", "seed=1", HOSTILE]
    assert shlex.split(html.unescape(results.group(1))) == command
