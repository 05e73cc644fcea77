"""Rewards before a run: what prompts request, and a trial of the user's functions."""

import json
import os
import shutil
import time
from pathlib import Path

import psutil
import pytest

from pipeline.errors import ConfigError
from pipeline.plan.checks import reward_warnings
from pipeline.run.reward_trial import try_rewards
from pipeline.run.run import prepare_plan
from pipeline.store.store import Store
from stages.rewards.config import SANDBOX
from stages.rewards.probe import probe
from tests.pipeline.plans import planned

FIXTURE = Path(__file__).parents[1] / "data" / "gsm8k"
GSM8K = ["experiment=gsm8k_smoke", f"dataset.path={FIXTURE}"]
BOX = 'tokenize.prompt_suffix="Answer in \\\\boxed{}."'
FORMAT = [
    "experiment=mindrlhf_7b", f"dataset.path={FIXTURE}", "model.path=/models/qwen",
    "reward.functions=[qwen_accuracy,format]", "reward.weights=[1.0,1.0]",
    'tokenize.prompt_suffix="\\n<think></think><answer>\\\\boxed{}</answer>"',
]  # fmt: skip
RL = ["engine=mindspeed_rl", "layout=dp2_mp2_pp2", "dataset=gsm8k", "model.max_position_embeddings=8192"]
USER_REWARD = ["reward.functions=[mine:f]", "reward.weights=[1.0]"]


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        ([], None),
        (GSM8K, None),
        ([*GSM8K, "reward=boxed"], "reward.functions=qwen_accuracy: can't be earned"),
        ([*GSM8K, "reward=boxed", BOX], None),
        # mindrlhf rewards a text with its end token, which breaks the format
        (FORMAT, "reward.functions=format: can't be earned: the token that ends"),
        ([*FORMAT, "engine.tokenizer=file"], None),
        ([*FORMAT, "model.variant=base"], None),
        (RL, None),
        ([*RL, "engine.prompt_type=qwen"], "engine.verifier_function=base_acc: can't be earned"),
        (["dataset=gsm8k"], "reward.functions"),  # not fetched yet
        # slow functions and the user's are not probed; a plan runs nothing of the user
        (USER_REWARD, None),
        (["reward.functions=[maths]", "reward.weights=[1.0]"], None),
        (["reward=cosine", "reward.length.correct_by=maths"], None),
    ],
)
def test_a_reward_that_prompts_do_not_request_is_a_warning(overrides, warning, directory):
    (directory / "mine.py").write_text("raise AssertionError")
    warnings = reward_warnings(planned(*overrides), Store(directory / "store"))
    assert any(item.startswith(warning) for item in warnings) if warning else warnings == []


def test_points_of_a_sweep_share_the_probe_of_equal_rewards(directory, monkeypatch):
    asked = []

    def recorded(*arguments):
        asked.append(arguments)
        return probe(*arguments)

    monkeypatch.setattr("stages.rewards.probe.probe", recorded)
    store, probed = Store(directory / "store"), {}
    for seed in (1, 2):
        for overrides, count in (([], 0), (["reward=boxed"], 1)):
            warnings = reward_warnings(planned(*GSM8K, f"seed={seed}", *overrides), store, probed)
            assert len([item for item in warnings if "can't be earned" in item]) == count
    assert len(asked) == 2


def test_warnings_are_part_of_a_plan(directory, printed):
    (warning,) = printed("plan", f"store={directory / 'store'}", *GSM8K, "reward=boxed", code=10)["warnings"]
    assert "boxed" in warning


def tried(directory, source, *overrides):
    (directory / "mine.py").write_text(source)
    try_rewards(*prepare_plan([f"store={directory / 'store'}", *USER_REWARD, *overrides]))


@pytest.mark.parametrize(
    ("source", "output"),
    [
        ("def g(c, s): return [1.0]", "reward.functions=mine:f: can't be imported: AttributeError"),
        ("import sys; sys.exit(0)", "can't be imported: SystemExit: 0 (mine.py:1)"),
        ("def f(c, s): raise KeyError(s[0])", "failed for 24 of 24 trial answers"),
        ("def f(c, s): return [1e39] * len(c)", "returned 1e+39: times its weight"),
        ("def f(c, s): return [1.0]", "returned 1 numbers for 28 completions"),
        ("def f(c, s, unit_tests): return [1.0] * len(c)", "has a parameter unit_tests"),
        ("import os\ndef f(c, s): os._exit(3)", "was tried before anything else runs: "),
    ],
)
def test_broken_reward_is_refused_before_the_run(directory, source, output):
    with pytest.raises(ConfigError) as caught:
        tried(directory, source)
    assert output in str(caught.value)
    assert not list(directory.glob("store/[!.]*"))


def test_working_reward_is_tried_once(directory, capsys):
    log = directory / "trials"
    source = f"open({str(log)!r}, 'a').write('.')\ndef f(c, s):\n    return [1.0 / len(text) for text in c]"
    tried(directory, source)
    assert "fails for a completion without any text: ZeroDivisionError" in capsys.readouterr().err
    for text, *overrides in ([source + "  # changed"], [source, "seed=1"]):
        before = log.read_text()
        tried(directory, source)
        assert log.read_text() == before
        assert "ZeroDivisionError" in capsys.readouterr().err  # cached with the result
        tried(directory, text, *overrides)
        assert log.read_text() > before
    before = log.read_text()
    tried(directory, source, "dataset=gsm8k")  # not fetched yet
    try_rewards(*prepare_plan([f"store={directory / 'store'}"]))  # no function of the user
    assert log.read_text() == before


def test_completions_without_text_are_tried_beside_the_others(directory, capsys):
    source = "def f(c, s):\n    lengths = list(map(len, c))\n"
    source += "    return [n / (max(lengths) - min(lengths)) for n in lengths]"
    tried(directory, source)
    assert "without any text" not in capsys.readouterr().err


def test_allowed_reward_failures(directory):
    tried(directory, "def f(c, s): return [1 / ('boxed' in text) for text in c]", "reward.max_failures=20")
    with pytest.raises(ConfigError, match="failed for all 24 trial answers"):
        tried(directory, "def f(c, s): return 1 / 0", "reward.max_failures=20")


LEFT = """
import subprocess, threading, time, multiprocessing
threading.Thread(target=time.sleep, args=(600,)).start()

def f(c, s):
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
    pid = subprocess.Popen(["sleep", "600"]).pid
    open("left", "a").write(f"{pid}\\n")
    return [1.0] * len(c)
"""


def test_threads_and_processes_that_a_reward_leaves_behind_keep_no_trial_waiting(directory):
    began = time.monotonic()
    tried(directory, LEFT)
    assert time.monotonic() - began < 60
    left = [int(line) for line in (directory / "left").read_text().splitlines()]
    assert left and not any(map(runs, left))


def runs(pid):
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_reward_that_hangs_is_refused_with_the_key_to_raise(directory):
    with pytest.raises(ConfigError, match=r"no result after 0\.5 s; raise reward\.timeout_s") as caught:
        tried(directory, "import time\ndef f(c, s): time.sleep(600)", "reward.timeout_s=0.5")
    assert "max_failures" not in str(caught.value)


def test_a_trial_gives_the_columns_of_the_dataset(directory, capsys):
    rows = [{"q": f"{n}+1?", "a": str(n + 1), "level": n} for n in range(40)]
    (directory / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = "def f(completions, truths, level, prompts):\n"
    source += "    assert all(p.startswith(f'{n}+1?') for n, p in zip(level, prompts)), (level, prompts)\n"
    source += "    return [float(n) for n in level]"
    data = ["dataset.columns={prompt:q,answer:a}", "dataset.solution=answer", "dataset.test_rows=8"]
    tried(directory, source, "dataset.path=rows.jsonl", *data)
    with pytest.raises(ConfigError, match="has a parameter tests"):
        tried(
            directory,
            source.replace("level, prompts)", "level, prompts, tests)", 1),
            "dataset.path=rows.jsonl",
            *data,
        )


JUDGE = [
    "reward=judge",
    "reward.judge.url=http://127.0.0.1:9/v1",
    "reward.judge.model=m",
    "reward.judge.retries=0",
]
CODE = ["reward=code", "reward.code.timeout_s=1"]


def test_a_service_that_does_not_answer_ends_the_run_before_anything_else(directory):
    prepared, store = prepare_plan([*JUDGE, f"store={directory / 'store'}"])
    with pytest.raises(ConfigError, match=r"was tried before anything else runs: .*cannot be reached"):
        try_rewards(prepared, store)


@pytest.mark.skipif(shutil.which(SANDBOX) is None, reason="bubblewrap is missing: apt-get install bubblewrap")
def test_the_sandbox_is_tried_before_a_run(directory, monkeypatch):
    prepared, store = prepare_plan([*CODE, f"store={directory / 'store'}"])
    with pytest.raises(ConfigError, match="failed for"):  # the sums of arith are no tests
        try_rewards(prepared, store)
    program = directory / "bwrap"
    program.write_text("#!/bin/sh\necho 'bwrap: no namespaces here' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=os.pathsep)
    with pytest.raises(ConfigError, match="bwrap: no namespaces here"):
        try_rewards(prepared, store)


def fingerprints(*overrides):
    return {spec.name: spec.key.fingerprint for spec in planned(*overrides).specs}


@pytest.mark.parametrize(
    "override, counts",
    [
        ("reward.judge.model=n", True),
        ("reward.judge.prompt='{completion}'", True),
        ("reward.judge.temperature=0.5", True),
        ("reward.judge.url=http://localhost:8/v1", False),
        ("reward.judge.key_variable=PATH", False),
        ("reward.judge.concurrency=3", False),
        ("reward.judge.cache=/tmp/cache", False),
    ],
)
def test_what_a_judge_answers_is_fingerprinted_and_not_where(override, counts):
    before, after = fingerprints(*JUDGE), fingerprints(*JUDGE, override)
    assert (before["grpo"] != after["grpo"]) == counts
    assert before["sft"] == after["sft"]


def test_settings_that_the_reward_does_not_use_change_nothing():
    number = ("reward.functions=[number]", "reward.weights=[1.0]")
    assert fingerprints("reward=number") == fingerprints(*JUDGE, *number) == fingerprints(*CODE, *number)


def test_columns_of_tests_are_read_from_the_dataset():
    inputs = {spec.name: dict(spec.inputs) for spec in planned(*CODE, "reward.code.tests=test_list").specs}
    assert "fetch_dataset" in inputs["grpo"] and "fetch_dataset" in inputs["evaluate"]
    plain = {spec.name: dict(spec.inputs) for spec in planned(*CODE).specs}
    assert "fetch_dataset" not in plain["grpo"]
