"""The example of docs/adding_a_stage.md, applied to a copy of the product."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_example_stage_runs(tmp_path):
    for name in ("conf", "grpoflow", "hydra_plugins", "launch", "pipeline", "stages"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    page = (ROOT / "docs/adding_a_stage.md").read_text(encoding="utf-8")
    module = re.search(r"^`(stages/\S+)`.*?^```python\n(.*?)^```$", page, re.M | re.S)
    (tmp_path / module[1]).write_text(module[2], encoding="utf-8")
    diffs = re.findall(r"^```diff\n(.*?)^```$", page, re.M | re.S)
    assert len(diffs) == 2
    for diff in diffs:
        apply = ["git", "apply", "--recount", "-"]
        subprocess.run(apply, input=diff, text=True, check=True, cwd=tmp_path, timeout=60)

    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    program = [sys.executable, "-m", "pipeline.cli", "run", "--until", "overlap", "store=store"]
    for _ in range(2):  # the second run has nothing to do
        subprocess.run(program, cwd=tmp_path, env=environment, check=True, timeout=300)
    (result,) = tmp_path.glob("store/overlap/*/result.json")
    assert 0 < json.loads(result.read_text())["shared"] < json.loads(result.read_text())["held_out"] == 1024
