import subprocess
import sys

from stages.grpo.config import check_train
from tests.stages.grpo import small
from tests.stages.grpo.test_loss import train_config


def test_rules_between_fields():
    problems = check_train(train_config(warmup_steps=9), small.rollout_config(min_tokens=11))
    assert [problem.path for problem in problems] == ["train.warmup_steps", "rollout.min_tokens"]
    assert not check_train(train_config(), small.rollout_config())


def test_configuration_imports_no_mindspore():
    modules = "stages.grpo.config, stages.grpo.stage, stages.sft, stages.sft_config, stages.evaluate, sys"
    program = f"import {modules}; sys.exit('mindspore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
