import subprocess
import sys

from stages.grpo.config import check_train
from tests.stages.grpo import small
from tests.stages.grpo.test_loss import train_config


def test_rules_between_fields():
    problems = check_train(train_config(warmup_steps=9), small.rollout_config(min_tokens=11))
    assert [problem.path for problem in problems] == ["train.warmup_steps", "rollout.min_tokens"]
    assert not check_train(train_config(), small.rollout_config())


def test_what_needs_checks_or_a_reference_says_so():
    alone = train_config(keep_best=True, patience=2, ref_model_sync_steps=5, max_kl=1.0, beta=0.0)
    assert [problem.path for problem in check_train(alone, small.rollout_config())] == [
        "train.keep_best", "train.patience", "train.ref_model_sync_steps", "train.max_kl",
    ]  # fmt: skip
    empty = train_config(validate_every=5, validation_prompts=0)
    assert [problem.path for problem in check_train(empty, small.rollout_config())] == [
        "train.validation_prompts"
    ]


def test_configuration_imports_no_mindspore():
    modules = "stages.grpo.config, stages.grpo.stage, stages.grpo.sft, stages.grpo.evaluate, sys"
    program = f"import {modules}; sys.exit('mindspore' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_logger_that_is_not_installed_is_refused_with_what_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "swanlab", None)  # as if it were not there
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "swanlab" else name)
    problems = check_train(train_config(loggers=["wandb", "swanlab", "wandb"]), small.rollout_config())
    assert [(problem.path, problem.remedy) for problem in problems] == [
        ("train.loggers[1]", "pip install 'grpoflow[loggers]'"),
        ("train.loggers[2]", "name it once"),
    ]
