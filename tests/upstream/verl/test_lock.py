"""The command by which `grpoflow doctor` makes verl's environment, typed as it is printed."""

import json
import subprocess
import sys

import pytest

from stages.engines.programs import fits
from stages.engines.verl.engine import lock_of, packages
from tests.upstream.programs import run

VERSIONS = """
import json, sys
from importlib.metadata import version
import torch, transformers, verl
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


@pytest.mark.upstream
@pytest.mark.timeout(1800)
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the list is one of Python 3.11")
def test_doctors_command_makes_an_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_RETRIES", "0")  # PyTorch's index does not answer everywhere
    home = tmp_path / "env"
    command = lock_of("cpu", "transformers").command.replace("ENV", str(home))
    subprocess.run(["bash", "-ec", command], check=True, cwd=tmp_path)
    program = tmp_path / "versions.py"
    program.write_text(VERSIONS)
    window = packages("cpu", "transformers")
    (line,) = run(home / "bin/python", program, *(name for name, _, _ in window))
    installed = json.loads(line)
    for name, versions, _ in window:
        assert fits(installed[name], versions), (name, installed[name], versions)
