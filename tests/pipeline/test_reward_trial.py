from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.run import reward_trial
from pipeline.run.reward_trial import try_rewards
from pipeline.run.run import prepare_plan

MINE = ("reward.functions=[mine:f]", "reward.weights=[1.0]")


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return tmp_path


def tried(place, source, *overrides):
    (place / "mine.py").write_text(source)
    return try_rewards(*prepare_plan([f"store={place / 'store'}", *MINE, *overrides]))


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("def g(c, s): return [1.0]", "reward.functions=mine:f: can't be imported: AttributeError"),
        ("import sys; sys.exit(0)", "can't be imported: SystemExit: 0 (mine.py:1)"),
        ("def f(c, s): raise KeyError(s[0])", "failed for 24 of 24 answers that it was tried on"),
        ("def f(c, s): return [1e39]", "returned 1e+39: times its weight"),
        ("import os\ndef f(c, s): os._exit(3)", "was tried before anything else runs: "),
    ],
)
def test_a_reward_that_cannot_work_is_refused_before_anything_runs(place, source, told):
    with pytest.raises(ConfigError) as caught:
        tried(place, source)
    assert told in str(caught.value)
    assert not list(place.glob("store/[!.]*"))


def test_one_that_works_is_tried_once(place, monkeypatch, capsys):
    source = "def f(c, s):\n    return [1.0 / len(c[0])]"
    assert tried(place, source)
    assert "fails for a completion without any text: ZeroDivisionError" in capsys.readouterr().err
    runs: list[object] = []
    monkeypatch.setattr(reward_trial, "_score_samples", lambda *given: runs.append(given) or [])
    assert tried(place, source) and not runs
    assert tried(place, source + " + 0.0") and len(runs) == 1
    assert tried(place, source, "seed=1") and len(runs) == 2


def test_what_is_allowed_to_fail_may_but_not_always(place):
    assert tried(place, "def f(c, s): return [1 / ('boxed' in c[0])]", "reward.max_failures=20")
    with pytest.raises(ConfigError, match="failed for all 24 answers"):
        tried(place, "def f(c, s): return 1 / 0", "reward.max_failures=20")


def test_a_dataset_that_is_not_fetched_yet_is_waited_for(place):
    assert not tried(place, "def f(c, s): return [1.0]", "dataset=gsm8k")


def test_built_in_rewards_start_no_process(place, monkeypatch):
    monkeypatch.setattr(reward_trial, "_score_samples", None)
    assert try_rewards(*prepare_plan([f"store={place / 'store'}"]))
