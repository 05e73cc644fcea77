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


def test_the_script_runs_as_itself_with_our_values_or_names_those_that_are_missing(tmp_path):
    (tmp_path / "mindrlhf/configs").mkdir(parents=True)
    (tmp_path / "examples").mkdir()
    sources = {
        "mindrlhf/__init__.py": "", "mindrlhf/configs/__init__.py": "from .grpo_configs import GRPOConfig",
        "mindrlhf/configs/grpo_configs.py": CONFIGS, "examples/beside.py": "HERE = 1",
        "examples/script.py": SCRIPT,
    }  # fmt: skip
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    file = tmp_path / "values.json"
    program = [sys.executable, entry.__file__, str(tmp_path / "examples/script.py"), str(file)]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}

    def start(values):
        file.write_text(json.dumps(values))
        command = [*program, "--use_parallel", "True"]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)

    done = start({"beta": 0.5})
    assert done.stdout == "{'beta': 0.5, 'epochs': 3} 3 1 ['--use_parallel', 'True']\n", done.stderr
    assert (tmp_path / "mindrlhf/configs/grpo_configs.py").read_text() == CONFIGS
    done = start({"beta": 0.5, "gamma_2": 1})
    assert done.returncode == 1 and "grpo_configs.py: GRPOConfig has no gamma_2" in done.stderr
