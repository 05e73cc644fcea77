"""Rewards that ask a service or start programs, in the real verl's reward loop."""

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


def by_verl(interpreter, directory, overrides, rows):
    """Return the rewards by verl's interpreter, and those of engine=local for the same rows."""
    config = load(["experiment=verl_7b", "model.path=/models/m", *overrides])
    for name, text in rewards.files(Job.from_run(config), Paths(directory, directory)).items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    program = (HERE / "score.py", directory / "configs/rewards.py", json.dumps(rows))
    printed = run(interpreter("verl"), *program, cwd=directory)
    texts, truths, lengths = zip(*rows, strict=True)
    local = score(config.reward, texts, truths, lengths, {"prompts": ["What is it?"] * len(rows)})
    return np.float32(json.loads(printed.splitlines()[-1])), local


def test_a_judge_scores_as_with_the_local_engine(interpreter, tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    with Service() as service:
        service.reply = lambda text, count: f"Score: {len(text) % 11}"
        overrides = [
            "reward=judge", f"reward.judge.url={service.url}", "reward.judge.model=m",
            "reward.judge.key_variable=JUDGE_KEY", "reward.functions=[judge,number]",
            "reward.weights=[1,0.5]",
        ]  # fmt: skip
        rows = [("#### 7", "7", 5), ("#### 8", "7", 5), ("longer\n#### 7", "7", 9), ("no", "7", 2)]
        made, local = by_verl(interpreter, tmp_path, overrides, rows)
        service.shutdown()
    assert made.tolist() == local.total.tolist() and len(set(made.tolist())) > 2
    asked = [each["messages"][0]["content"] for each in service.requests]
    assert sorted(asked[:4]) == sorted(asked[4:]) and "What is it?" in asked[0]
    assert {each["Authorization"] for each in service.headers} == {f"Bearer {KEY}"}
    assert scoring.total_usage(tmp_path)["judge_requests"] == 4
    assert not (tmp_path / scoring.REPORT).exists()
    written = [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10 and not any(KEY in text for text in written)


@needs_sandbox
def test_programs_are_tested_as_with_the_local_engine(interpreter, tmp_path):
    tests = json.dumps(TESTS)
    rows = [(GOOD, tests, 9), ("def add(a, b): return 3", tests, 5), ("no program", tests, 2)]
    made, local = by_verl(interpreter, tmp_path, ["reward=code", "reward.code.partial=true"], rows)
    assert made.tolist() == local.total.tolist() == [1.0, 0.5, 0.0]
