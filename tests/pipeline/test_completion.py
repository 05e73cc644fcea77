"""Shell completion."""

import os
import shutil
import subprocess
import sys

import pytest

from pipeline.cli import main


def completions(line, tmp_path):
    """Return the completions that a shell receives."""
    out = tmp_path / "completions"
    shell = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "fish", "COMP_LINE": line,
        "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
    }  # fmt: skip
    subprocess.run(
        [sys.executable, "-m", "pipeline.cli"], env={**os.environ, **shell}, timeout=120, check=False
    )
    return {word.partition("\t")[0].strip() for word in out.read_text().split("\n")}


def test_completion_through_a_shell(tmp_path):
    pytest.importorskip("argcomplete")
    assert "model=tiny" in completions("grpoflow plan model=ti", tmp_path)
    assert "train.beta=" in completions("grpoflow plan train.be", tmp_path)
    assert "train.loss_type=dapo" in completions("grpoflow plan train.loss_type=", tmp_path)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_code_is_valid(shell, capsys):
    pytest.importorskip("argcomplete")
    assert main(["completion", shell]) == 0
    code = capsys.readouterr().out
    assert "grpoflow" in code
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=code, text=True, timeout=60, check=True)
