"""Shell completion."""

import os
import shutil
import subprocess
import sys

import pytest

from pipeline.cli import main


@pytest.mark.parametrize(
    ("typed", "completion"),
    [
        ("model=ti", "model=tiny"),
        ("train.be", "train.beta="),
        ("train.loss_type=", "train.loss_type=dapo"),
    ],
)
def test_completion_through_a_shell(typed, completion, tmp_path):
    pytest.importorskip("argcomplete")
    line, out = f"grpoflow plan {typed}", tmp_path / "completions"
    shell = {
        "_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SHELL": "fish", "COMP_LINE": line,
        "COMP_POINT": str(len(line)), "COMP_TYPE": "9", "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
    }  # fmt: skip
    subprocess.run([sys.executable, "-m", "pipeline.cli"], env={**os.environ, **shell}, timeout=120)
    assert completion in {word.partition("\t")[0].strip() for word in out.read_text().split("\n")}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_code_is_valid(shell, capsys):
    pytest.importorskip("argcomplete")
    assert main(["completion", shell]) == 0
    if shutil.which(shell):
        code = capsys.readouterr().out
        subprocess.run([shell, "-n"], input=code, text=True, timeout=60, check=True)
