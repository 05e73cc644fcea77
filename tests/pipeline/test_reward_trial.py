from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.run import reward_trial
from pipeline.run.reward_trial import try_rewards
from pipeline.run.run import prepare_plan

USER_REWARD = ("reward.functions=[mine:f]", "reward.weights=[1.0]")


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return tmp_path


def tried(directory, source, *overrides):
    (directory / "mine.py").write_text(source)
    try_rewards(*prepare_plan([f"store={directory / 'store'}", *USER_REWARD, *overrides]))


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("def g(c, s): return [1.0]", "reward.functions=mine:f: can't be imported: AttributeError"),
        ("import sys; sys.exit(0)", "can't be imported: SystemExit: 0 (mine.py:1)"),
        ("def f(c, s): raise KeyError(s[0])", "failed for 24 of 24 trial answers"),
        ("def f(c, s): return [1e39]", "returned 1e+39: times its weight"),
        ("import os\ndef f(c, s): os._exit(3)", "was tried before anything else runs: "),
    ],
)
def test_broken_reward_is_refused_before_the_run(directory, source, output):
    with pytest.raises(ConfigError) as caught:
        tried(directory, source)
    assert output in str(caught.value)
    assert not list(directory.glob("store/[!.]*"))


def test_working_reward_is_tried_once(directory, monkeypatch, capsys):
    source = "def f(c, s):\n    return [1.0 / len(c[0])]"
    tried(directory, source)
    assert "fails for a completion without any text: ZeroDivisionError" in capsys.readouterr().err
    runs: list[object] = []
    monkeypatch.setattr(reward_trial, "_score_samples", lambda *arguments: runs.append(arguments) or [])
    for number, (text, *overrides) in enumerate([[source], [source + " + 0.0"], [source, "seed=1"]]):
        tried(directory, text, *overrides)
        assert len(runs) == number


def test_allowed_reward_failures(directory):
    tried(directory, "def f(c, s): return [1 / ('boxed' in c[0])]", "reward.max_failures=20")
    with pytest.raises(ConfigError, match="failed for all 24 trial answers"):
        tried(directory, "def f(c, s): return 1 / 0", "reward.max_failures=20")


def test_without_a_dataset_or_user_functions_no_process_is_started(directory, monkeypatch):
    monkeypatch.setattr(reward_trial, "_score_samples", None)
    tried(directory, "def f(c, s): return [1.0]", "dataset=gsm8k")
    try_rewards(*prepare_plan([f"store={directory / 'store'}"]))
