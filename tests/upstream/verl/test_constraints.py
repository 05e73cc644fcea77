"""The versions that doctor prints install into an empty environment, in which verl starts."""

import subprocess
import sys

import pytest

from tests.upstream.verl.product import grpoflow

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(3600)]
CPU = ("engine=verl", "engine.device=cpu")


def test_the_versions_for_a_cpu_install_into_an_empty_environment(tmp_path):
    printed = grpoflow(tmp_path, "doctor", *CPU, "--constraints")
    assert printed.returncode == 0, printed.stderr
    (tmp_path / "requirements.txt").write_text(printed.stdout)
    python = tmp_path / "environment" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--requirement", "requirements.txt"]
    for command in ([sys.executable, "-m", "venv", python.parents[1]], install):
        subprocess.run(command, cwd=tmp_path, check=True)
    subprocess.run([python, "-c", "import verl.trainer.main_ppo"], cwd=tmp_path, check=True)
    checked = grpoflow(tmp_path, "doctor", *CPU, f"engine.python={python}", "layout=dp1_mp1_pp1")
    assert checked.returncode == 0, checked.stdout + checked.stderr
