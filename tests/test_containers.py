"""The container files name what exists; docker itself runs where there is a daemon only."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from pipeline import cli

ROOT = Path(__file__).parents[1]
INSTRUCTIONS = {"FROM", "ARG", "ENV", "RUN", "COPY", "USER", "WORKDIR", "ENTRYPOINT", "CMD"}


def instructions():
    """Return the instructions of the Dockerfile with their arguments, continuation lines joined."""
    text = (ROOT / "containers/Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [line.split(maxsplit=1) for line in lines]


def test_the_image_is_pinned_and_does_not_run_as_root():
    listed = instructions()
    assert {name for name, _ in listed} <= INSTRUCTIONS
    (base,) = (value for name, value in listed if name == "FROM")
    assert re.fullmatch(r"python:3\.(10|11)-\S+", base)
    (user,) = (value for name, value in listed if name == "USER")
    assert user != "root" and f"--uid 1000 {user}" in str(listed)
    assert [name for name, _ in listed].index("USER") < [name for name, _ in listed].index("ENTRYPOINT")


def test_the_service_builds_this_image_and_runs_a_command():
    service = yaml.safe_load((ROOT / "containers/compose.yaml").read_text())["services"]["orchestrator"]
    context = ROOT / "containers" / service["build"]["context"]
    assert (context / service["build"]["dockerfile"]).resolve() == ROOT / "containers/Dockerfile"
    assert service["command"][0] in cli.COMMANDS
    ignored = (ROOT / ".dockerignore").read_text().split()
    assert {".git", "store", "upstream"} <= set(ignored) and not {"conf", "stages"} & set(ignored)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_the_image_is_built_where_a_daemon_is():
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], capture_output=True).returncode:
        pytest.skip("no docker daemon")
    line = [docker, "build", "--quiet", "--file", "containers/Dockerfile", "."]
    assert subprocess.run(line, cwd=ROOT).returncode == 0
