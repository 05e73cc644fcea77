"""One seed of the benchmark `learning`: GRPO teaches the tiny model as much here as in TRL."""

import os
import subprocess
import sys

import pytest

from tests.benchmarks.learning import curves


@pytest.mark.parity
@pytest.mark.long
def test_learns_as_much_as_trl_does(tmp_path):
    python = os.environ.get("GRPOFLOW_TRL_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import trl, datasets"], capture_output=True, check=False).returncode:
        pytest.skip("no TRL; set GRPOFLOW_TRL_PYTHON to an interpreter that can import it")
    (actual,), (reference,) = curves(tmp_path, python, [0])
    begin = reference[0][1]
    assert 0.2 < begin < 0.8  # there is something to learn
    assert actual[-1][1] > begin + 0.1 and reference[-1][1] > begin + 0.1
    assert abs(actual[-1][1] - reference[-1][1]) < 0.1
