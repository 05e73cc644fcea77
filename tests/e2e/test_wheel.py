"""A wheel without extras, in an environment of its own: the orchestrator without MindSpore."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import finish

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
VERL = ["engine=verl", "engine.device=cpu", "layout=named", "model=tiny", "sft.enabled=false"]
PACKAGES = ("conf", "grpoflow", "hydra_plugins", "launch", "pipeline", "stages")
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"


@pytest.fixture(scope="module")
def grpoflow(tmp_path_factory):
    """Return a function that runs the command `grpoflow` of the installed wheel."""
    root = tmp_path_factory.mktemp("wheel")
    environment, tree = root / "environment", root / "tree"  # setuptools writes into the tree
    for name in PACKAGES:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    build = ["wheel", "--no-deps", "--wheel-dir", str(root), str(tree)]
    subprocess.run([*pip, *build], check=True, timeout=300)
    (wheel,) = root.glob("grpoflow-*.whl")
    install = ["install", "--constraint", str(CONSTRAINTS), str(wheel)]
    subprocess.run([*pip, *install], check=True, timeout=900)

    def run(*arguments, code=0):
        return finish([str(environment / "bin" / "grpoflow"), *arguments], str(root), code=code)

    return run


def test_engine_verl_needs_no_extra(grpoflow, tmp_path):
    rows = [{"q": f"{first} plus 1?", "a": f"#### {first + 1}"} for first in range(64)]
    data = tmp_path / "sums.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = [f"dataset.path={data}", "dataset.columns.prompt=q", "dataset.columns.answer=a"]
    overrides = [
        *VERL,
        *own,
        "dataset.test_rows=8",
        "train.prompts_per_step=4",
        f"store={tmp_path / 'store'}",
    ]
    planned = grpoflow("plan", "--json", *overrides, code=10)
    states = {row["stage"]: row["state"] for row in json.loads(planned.stdout)["stages"]}
    assert states["grpo"] == states["export"] == states["report"] == "RUN"
    assert states["evaluate"] == "SKIPPED"  # it computes with MindSpore
    grpoflow("run", "--until", "tokenize", *overrides)
    (tokenized,) = (tmp_path / "store" / "tokenize").glob("*/manifest.json")
    manifest = json.loads(tokenized.read_text())
    assert {"train.parquet", "test.mindrecord"} <= {file.name for file in tokenized.parent.iterdir()}
    assert "mindspore" not in manifest["versions"]


def test_engine_local_is_refused_with_the_command_that_installs_it(grpoflow, tmp_path):
    for command in ("plan", "run"):
        refused = grpoflow(command, f"store={tmp_path / 'store'}", code=2)
        assert "mindspore: not installed" in refused.stderr
        assert "pip install 'grpoflow[local]'" in refused.stderr
    assert not (tmp_path / "store").exists()
