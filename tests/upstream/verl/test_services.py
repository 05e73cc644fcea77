"""Rewards of several completions, of a judge and of programs, in the real verl's reward loop.

Each is also computed by changed copies of what is rendered, which must give others.
"""

import json

import numpy as np
import pytest

from pipeline.config.load import load
from stages.engines import scoring
from stages.engines.verl import rewards
from stages.engines.verl.job import Job, Paths
from stages.rewards.score import score
from tests.stages.rewards.test_code import GOOD, TESTS, needs_sandbox
from tests.stages.rewards.test_judge import Service
from tests.upstream.verl.test_product import HERE, run

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
KEY = "loopback-key-of-a-test"
SETTINGS, MANAGER, ARRIVING = (
    "configs/rewards.py", "scoring/grpoflow_rewards.py", "scoring/stages/rewards/arriving.py",
)  # fmt: skip
"""Rendered files."""


def write(directory, config, mutant=None):
    """Write the rendered files, one of them changed: its name, a part of its text, and what replaces that."""
    texts = dict(rewards.files(Job.from_run(config), Paths(directory, directory)))
    if mutant is not None:
        name, old, new = mutant
        assert texts[name].count(old) == 1
        texts[name] = texts[name].replace(old, new)
    for name, text in texts.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory / SETTINGS


def by_verl(interpreter, directory, overrides, rows, mutants):
    """Return rewards by verl's interpreter, by each mutant, and by engine=local for the same rows."""
    config = load(["experiment=verl_7b", "model.path=/models/m", *overrides])
    files = [write(directory, config)]
    files += [write(directory / f"mutant{i}", config, mutant) for i, mutant in enumerate(mutants)]
    printed = run(interpreter("verl"), HERE / "score.py", json.dumps(rows), *files, cwd=directory)
    texts, truths, lengths = zip(*rows, strict=True)
    local = score(config.reward, texts, truths, lengths, {"prompts": ["What is it?"] * len(rows)})
    made, *changed = (np.float32(each).tolist() for each in json.loads(printed.splitlines()[-1]))
    return made, changed, local.total.tolist()


USER = """
def share(completions, solutions, prompts):
    with open({calls!r}, "a") as file:
        file.write(f"{{len(completions)}}\\n")
    return [len(text) / len(prompt) for text, prompt in zip(completions, prompts)]
"""


@pytest.mark.core
def test_a_function_of_the_user_gets_completions_together(interpreter, tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    (tmp_path / "users_share.py").write_text(USER.format(calls=str(calls)))
    monkeypatch.syspath_prepend(str(tmp_path))
    rows = [("x" * length, "7", length) for length in (3, 1, 4, 1, 5, 9)]
    mutants = [
        (ARRIVING, "zip(batch, rewards, strict=True)", "zip(batch, rewards[::-1], strict=True)"),
        (ARRIVING, "[each.prompt for each in batch]", "[batch[0].completion for each in batch]"),
        (MANAGER, "prompt=prompt,", 'prompt="other",'),
        (SETTINGS, "'weights': (1.0,)", "'weights': (2.0,)"),
    ]
    overrides = ["reward.functions=[users_share:share]", "reward.weights=[1.0]"]
    made, changed, local = by_verl(interpreter, tmp_path, overrides, rows, mutants)
    assert made == local and local[0] == np.float32(3 / 11)
    assert all(each != local for each in changed)
    assert calls.read_text().split() == [str(len(rows))] * (2 + len(mutants))


def test_a_judge_scores_as_with_the_local_engine(interpreter, tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    with Service() as service:
        service.reply = lambda text, count: f"Score: {sum(map(ord, text)) % 11}"
        overrides = [
            "reward=judge", f"reward.judge.url={service.url}", "reward.judge.model=m",
            "reward.judge.key_variable=JUDGE_KEY", "reward.functions=[judge,number]",
            "reward.weights=[1,0.5]",
        ]  # fmt: skip
        rows = [("#### 7", "7", 5), ("#### 8", "7", 5), ("longer\n#### 7", "7", 9), ("no", "7", 2)]
        mutants = [
            (MANAGER, "prompt=prompt,", 'prompt="",'),
            (SETTINGS, "'weights': (1.0, 0.5)", "'weights': (0.5, 1.0)"),
        ]
        made, changed, local = by_verl(interpreter, tmp_path, overrides, rows, mutants)
        service.shutdown()
    assert made == local and len({*made}) > 2
    assert all(each != local for each in changed)
    asked = [each["messages"][0]["content"] for each in service.requests]
    assert len(asked) == 4 * (2 + len(mutants))
    assert sorted(asked[:4]) == sorted(asked[-4:]) and "What is it?" in asked[0]
    assert {each["Authorization"] for each in service.headers} == {f"Bearer {KEY}"}
    assert scoring.total_usage(tmp_path)["judge_requests"] == 4
    assert not (tmp_path / scoring.REPORT).exists()
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10 and not any(KEY in text for text in written)


@needs_sandbox
def test_programs_are_tested_as_with_the_local_engine(interpreter, tmp_path):
    tests = json.dumps(TESTS)
    rows = [(GOOD, tests, 9), ("def add(a, b): return 3", tests, 5), ("no program", tests, 2)]
    mutants = [
        (SETTINGS, "'partial': True", "'partial': False"),
        (MANAGER, 'fields["reward_model"]["ground_truth"]', "json.dumps(['assert True'])"),
    ]
    overrides = ["reward=code", "reward.code.partial=true"]
    made, changed, local = by_verl(interpreter, tmp_path, overrides, rows, mutants)
    assert made == local == [1.0, 0.5, 0.0]
    assert all(each != local for each in changed)
