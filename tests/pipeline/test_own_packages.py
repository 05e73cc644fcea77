"""Files of the working directory that are named like grpoflow's packages replace none of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PYTHON = Path(sys.executable)
COMMANDS = {
    "run": [PYTHON.with_name("grpoflow"), "run"],
    "python -m pipeline": [PYTHON, "-m", "pipeline"],
    "luigi": [PYTHON.with_name("luigi"), "--module", "pipeline", "FetchDataset", "--overrides"],
    "python": [PYTHON, "-c", "import sys, grpoflow; grpoflow.run(sys.argv[1], only='fetch_dataset')"],
    "probe": [PYTHON.with_name("grpoflow"), "probe"],
}


@pytest.mark.parametrize("form", ["{}.py", "{}/__init__.py", "{}/config.yaml"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_working_directory_shadows_no_package(command, form, tmp_path):
    own = form.endswith(".py")
    names = ["stages", "conf", "launch", "pipeline"]
    if own and command == "python -m pipeline":  # then Python is asked to run the user's
        names.remove("pipeline")
    for name in names:
        file = tmp_path / "here" / form.format(name)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("raise SystemExit('shadowed')\n" if own else "defaults: []\n")
    overrides = f"store={tmp_path / 'store'}"
    options = ["--only", "fetch_dataset"] if command in ("run", "python -m pipeline") else []
    line = [*map(str, COMMANDS[command]), overrides, *options]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        line, cwd=tmp_path / "here", env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    if command != "probe":
        assert list((tmp_path / "store/fetch_dataset").glob("*/manifest.json"))
