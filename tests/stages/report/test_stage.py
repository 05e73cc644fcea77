import json
import os
import resource
import subprocess
import sys
from pathlib import Path

from stages.report.config import ReportConfig
from stages.report.stage import write_report

ROOT = Path(__file__).parents[3]


def test_the_stage_in_a_separate_process(run, tmp_path):
    output = tmp_path / "output"
    output.mkdir()
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({
        "stage": "report", "config": {"report": {"title": None, "samples": 12, "text_limit": 1500}},
        "inputs": {name: str(path) for name, path in run.items()}, "output": str(output),
        "work": str(tmp_path / "work"), "progress_file": str(tmp_path / "progress.jsonl"),
    }))  # fmt: skip
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "stages", "report", str(spec)], check=True, cwd=ROOT,
                   env={**os.environ, "PYTHONHASHSEED": "7"}, timeout=120)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    # Processor time, since other work on the machine must not fail this test.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 4
    assert sorted(file.name for file in output.iterdir()) == ["index.html", "result.json"]
    page = (output / "index.html").read_bytes()
    assert json.loads((output / "result.json").read_text()) == {"bytes": len(page)}
    assert json.loads((tmp_path / "progress.jsonl").read_text().splitlines()[-1])["step"] == 1
    # The same bytes in another process with another hash seed.
    write_report(run, tmp_path, ReportConfig(title=None, samples=12, text_limit=1500))
    assert (tmp_path / "index.html").read_bytes() == page
