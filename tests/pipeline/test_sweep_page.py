import html
import json
import re
import shlex
from dataclasses import asdict

from pipeline.sweep.page import page
from pipeline.sweep.points import Point

HOSTILE = "report.title='a b; $(rm -rf ~) <script>alert(1)</script> \"q\"'"


def written(points):
    """Return the content of sweep.json."""
    values = {"id": "0123abcd", "overrides": ["seed=0,1"], "started": 12.0, "written": 20.0}
    return {**values, "points": [asdict(point) for point in points]}


def artifact(store, name, **files):
    directory = store / name
    directory.mkdir(parents=True)
    manifest = {"started": 10.0, "ended": 15.0}
    for file, text in {"manifest.json": json.dumps(manifest), **files}.items():
        (directory / file).write_text(text)


def test_page_shows_results_of_the_points(tmp_path):
    metrics = "".join(json.dumps({"step": step, "reward": step / 4}) + "\n" for step in (1, 2, 3))
    artifact(tmp_path, "fetch/00")
    artifact(tmp_path, "grpo/aa", **{"metrics.jsonl": metrics})
    points = [
        Point(0, ["store=s", "seed=0"], "finished", result={"accuracy_sft": 0.2, "accuracy_grpo": 0.5},
              artifacts={"fetch": "fetch/00", "grpo": "grpo/aa"}),
        Point(1, ["store=s", "seed=1", HOSTILE], "finished",
              result={"accuracy_sft": 0.2, "accuracy_grpo": 0.75}, artifacts={"fetch": "fetch/00"}),
        Point(2, ["store=s", "seed=2"], "failed", "stage grpo failed", artifacts={"grpo": "grpo/never"}),
    ]  # fmt: skip
    source = page(written(points), points, tmp_path, tmp_path / "my conf")
    assert "Best: point 1" in source and "75.0 %" in source and "stage grpo failed" in source
    assert "Reward. 0: seed=0: 0.250 at step 1" in source
    assert "store=s" not in source[source.index('id="points"') : source.index('id="without"')]
    results = re.search(r'<pre id="reproduce">(.*?)</pre>', source, re.DOTALL)
    assert results is not None and "<script>" not in results.group(1)
    command = ["grpoflow", "run", "--config-dir", str(tmp_path / "my conf"), "store=s", "seed=1", HOSTILE]
    assert shlex.split(html.unescape(results.group(1))) == command
