"""The program that puts our hyper-parameters in the place of a checkout's."""

import json
import os
import subprocess
import sys

from stages.engines.mindrlhf_one_stage import entry

CONFIGS = """
from dataclasses import dataclass
@dataclass
class GRPOConfig:
    beta: float = 0.04
    epochs: int = 2
    interval = 3
"""
SCRIPT = """
import sys
from dataclasses import asdict
from beside import HERE
from mindrlhf.configs import GRPOConfig as theirs
from mindrlhf.configs.grpo_configs import GRPOConfig
assert __name__ == "__main__"
config = GRPOConfig()
config.epochs += 1
print(asdict(config), config.interval, HERE, sys.argv[1:])
"""


def checkout(root):
    (root / "mindrlhf/configs").mkdir(parents=True)
    (root / "examples").mkdir()
    (root / "mindrlhf/__init__.py").touch()
    (root / "mindrlhf/configs/__init__.py").write_text("from .grpo_configs import GRPOConfig")
    (root / "mindrlhf/configs/grpo_configs.py").write_text(CONFIGS)
    (root / "examples/beside.py").write_text("HERE = 1")
    (root / "examples/script.py").write_text(SCRIPT)
    return root


def start(root, values):
    file = root / "values.json"
    file.write_text(json.dumps(values))
    program = [sys.executable, entry.__file__, str(root / "examples/script.py"), str(file)]
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*program, "--use_parallel", "True"], env=env, capture_output=True, text=True, timeout=60
    )


def test_the_script_runs_as_itself_with_our_values(tmp_path):
    done = start(checkout(tmp_path), {"beta": 0.5})
    assert done.stdout == "{'beta': 0.5, 'epochs': 3} 3 1 ['--use_parallel', 'True']\n", done.stderr
    assert (tmp_path / "mindrlhf/configs/grpo_configs.py").read_text() == CONFIGS


def test_a_value_that_is_missing_in_the_checkout_is_an_error(tmp_path):
    done = start(checkout(tmp_path), {"beta": 0.5, "gamma_2": 1})
    assert done.returncode == 1
    assert "grpo_configs.py: GRPOConfig has no gamma_2" in done.stderr
