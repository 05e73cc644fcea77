import json
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.config.load import load
from pipeline.plan.checks import reward_warnings as warnings
from pipeline.plan.graph import plan
from pipeline.store.store import Store
from stages.base.files import file_digest

FIXTURE = Path(__file__).parents[1] / "data" / "gsm8k"
GSM8K = ["experiment=gsm8k_smoke", f"dataset.path={FIXTURE}"]
BOX = 'tokenize.prompt_suffix="Answer in \\\\boxed{}."'


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def planned(*overrides):
    return plan(load(overrides), file_digest)


def test_a_reward_that_prompts_do_not_request_is_a_warning(tmp_path, capsys):
    arguments = ["plan", f"store={tmp_path / 'store'}", *GSM8K]
    assert main([*arguments, "reward=boxed", "--json"]) == 10
    (warning,) = json.loads(capsys.readouterr().out)["warnings"]
    assert warning.startswith("reward.functions=qwen_accuracy: can't be earned")
    assert "\\boxed" in warning
    assert main([*arguments, "reward=boxed"]) == 10
    assert "warning: reward.functions=qwen_accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("overrides", [[], GSM8K, [*GSM8K, "reward=boxed", BOX]])
def test_valid_recipes_give_no_warning(tmp_path, capsys, overrides):
    assert main(["plan", "--json", f"store={tmp_path / 'store'}", *overrides]) == 10
    assert json.loads(capsys.readouterr().out)["warnings"] == []


FORMAT = [
    "experiment=mindrlhf_7b", f"dataset.path={FIXTURE}", "model.path=/models/qwen",
    "reward.functions=[qwen_accuracy,format]", "reward.weights=[1.0,1.0]",
    'tokenize.prompt_suffix="\\n<think></think><answer>\\\\boxed{}</answer>"',
]  # fmt: skip


def test_mindrlhf_rewards_text_that_ends_with_a_stop_token(tmp_path):
    store = Store(tmp_path / "store")
    problems = warnings(planned(*FORMAT), store)
    assert any(
        item.startswith("reward.functions=format: can't be earned: the token that ends") for item in problems
    )
    assert warnings(planned(*FORMAT, "engine.tokenizer=file"), store) == []
    assert warnings(planned(*FORMAT, "model.variant=base"), store) == []


@pytest.mark.parametrize(
    "overrides",
    [
        ["reward.functions=[my_rewards:flat]", "reward.weights=[1.0]"],
        ["reward.functions=[maths]", "reward.weights=[1.0]"],
        ["reward=cosine", "reward.length.correct_by=maths"],
    ],
)
def test_slow_and_user_functions_are_not_probed(tmp_path, overrides, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rewards.py").write_text("raise AssertionError('a plan runs nothing of the user')")
    assert warnings(planned(*overrides), Store(tmp_path)) == []


def test_a_dataset_that_is_not_fetched_yet_is_reported(tmp_path):
    (warning,) = warnings(planned("dataset=gsm8k"), Store(tmp_path))
    assert "was not probed" in warning and "from url is not fetched yet" in warning


def test_mindspeed_rl_is_probed_with_its_template_and_verifiers(tmp_path):
    overrides = [
        "engine=mindspeed_rl",
        "layout=dp2_mp2_pp2",
        "dataset=gsm8k",
        "model.max_position_embeddings=8192",
    ]
    assert warnings(planned(*overrides), Store(tmp_path)) == []
    (warning,) = warnings(planned(*overrides, "engine.prompt_type=qwen"), Store(tmp_path))
    assert warning.startswith("engine.verifier_function=base_acc: can't be earned")
