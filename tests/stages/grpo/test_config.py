import subprocess
import sys


def test_configuration_and_rules_import_no_mindspore():
    modules = "config, stages.grpo.rules, stages.grpo.stage, stages.grpo.sft, stages.grpo.evaluate, sys"
    program = f"import stages.grpo.{modules}; sys.exit('mindspore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
