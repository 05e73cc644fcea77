import json
import math

import pytest

from stages.engines.mindspeed_rl.results import NAMES, RATES, SCORES, SampleReader, TrainWatcher, read_line
from stages.grpo.metrics import OUTSIDE, SCHEMA
from tests.stages.engines.mindspeed_rl.jobs import job_of

HEAD = (
    "\x1b[36m(train pid=1234, ip=10.0.0.2)\x1b[0m 2026-11-21 15:20:01,000 - INFO - [2026-11-21 15:20:01] "
    "iteration: 3 / 500 | timing/all : 12.5000 | timing/update : 4.0000 | timing/rollout : 6.0000 | "
    "timing/rule_reward : 0.2000 | actor/entropy : 0.3100 | actor/kl_loss : 0.0012 | "
    "actor/pg_loss : 0.0500 | "
    "actor/pg_clipfrac : 0.0040 | actor/grad_norm : 0.9000 | actor/lr : 1.000000e-06 | "
    "base_acc_rewards/mean : 0.2500 | grpo/score/mean : 0.5000 | grpo/score/max : 1.0000 | "
    "grpo/score/min : 0.0000 | response_length/mean : 310.5000 | response_length/max : 2048.0000 | "
    "prompt_length/mean : 180.0000 | e2e_tps : 220.0000 | vllm_tps : 400.0000 | update_tps : 900.0000 \n"
)
WINDOW = (
    "(train pid=9) 2025-06-10 01:02:03 - INFO - [2025-06-10 01:02:03] iteration: 1 / 4 | "
    "grpo/base_acc_rewards/mean : 0.2500 | grpo/lr : 2.000000e-07 | "
    "grad_norm : 1.5000 | grpo/score/mean : 0.7000 | grpo/rewards/mean : -0.5000 | "
    "grpo/rewards/max : 1.0000 | grpo/rewards/min : -1.0000 | timing/all : nan "
)


def test_a_line_of_the_newer_version():
    result = read_line(HEAD, cards=16)
    assert result is not None and result[1] == 500
    assert result[0] == {
        "step": 3.0, "step_s": 12.5, "train_s": 4.0, "rollout_s": 6.0, "reward_s": 0.2, "entropy": 0.31,
        "kl": 0.0012, "loss": 0.05, "clip_fraction": 0.004, "grad_norm": 0.9, "lr": 1e-06,
        "reward/base_acc": 0.25, "reward": 0.5, "reward_max": 1.0, "reward_min": 0.0,
        "completion_length": 310.5, "completion_length_max": 2048.0, "prompt_length": 180.0,
        "tokens_per_s": 3520.0, "rollout_tokens_per_s": 6400.0, "train_tokens_per_s": 14400.0,
    }  # fmt: skip
    assert {*NAMES.values(), *SCORES.values(), *RATES.values()} <= SCHEMA.keys() | OUTSIDE.keys()


def test_a_line_of_the_earlier_version_has_rewards_and_scores():
    row, _ = read_line(WINDOW, cards=2) or ({}, 0)
    assert math.isnan(row.pop("step_s"))
    assert row == {
        "step": 1, "reward/base_acc": 0.25, "lr": 2e-07, "grad_norm": 1.5, "reward": -0.5, "reward_max": 1.0,
        "reward_min": -1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["sync start grpo training at iteration: 0/500 ...", "checkpoint saved at iteration: 3 / 500",
     "reiteration: 3 / 500 | grpo/score/mean : 1.0 |", ""],
)  # fmt: skip
def test_further_lines_are_no_iterations(line):
    assert read_line(line, cards=1) is None


def test_a_truncated_line_yields_its_complete_metrics():
    result = read_line("iteration: 2 / 4 | grpo/score/mean : 0.5000 | response_length/me", cards=1)
    assert result is not None and result[0] == {"step": 2.0, "reward": 0.5}


TIME = "2026-11-21 15:20:01,000 - INFO - [2026-11-21 15:20:01] INFO"


def sample_lines(pid, question, answer, label):
    """Return what Ray prints of a scoring process: each line with the process before it."""
    messages = ["=" * 50, ">>>>>>>>>> User:\n", question, ">>>>>>>>>> Assistant:\n", answer]
    messages += [">>>>>>>>>> labels", label, "=" * 50]
    text = "\n".join(f"{TIME} {message}" for message in messages)
    return [f"\x1b[36m(RuleReward pid={pid})\x1b[0m {line}" for line in text.split("\n")]


def samples(lines):
    reader = SampleReader()
    return [sample for line in lines if (sample := reader.read(line)) is not None]


def test_a_sample_is_question_answer_and_label():
    question, answer = "system\nWhat is\n\n1 + 1?", "<think>2</think>\n\\boxed{2}"
    lines = sample_lines(7, question, answer, "2")
    assert samples(lines) == [{"prompt": question, "completion": answer, "solution": "2"}]


def test_mixed_lines_of_two_processes_are_separated():
    first, second = sample_lines(7, "a", "b", "c"), sample_lines(8, "d", "e", "f")
    mixed = [line for pair in zip(first, second, strict=True) for line in pair]
    assert [sample["completion"] for sample in samples(mixed)] == ["b", "e"]


def test_further_messages_are_not_part_of_a_sample():
    lines = sample_lines(7, "a", "b", "c")
    lines.insert(5, f"(RuleReward pid=7) {TIME} compute_verifier_score: verifier start")
    lines.insert(6, "(RuleReward pid=7) of something")
    lines += ["(train pid=9) iteration: 1 / 4 | x : 1.0 |", "plain", f"(RuleReward pid=7) {TIME} " + "=" * 50]
    (sample,) = samples(lines)
    assert sample["prompt"] == "a"


def iteration_line(step, total=500):
    return f"(train pid=7) iteration: {step} / {total} | grpo/score/mean : 0.{step}000 | e2e_tps : 8.0000 "


def watch(root, lines, *overrides):
    """Return what a watcher of a log with these lines reports, and the rows that it leaves in each file."""
    job = job_of("model=qwen2_5_7b", "layout=dp4_mp2_pp2", "train.logged_completions=1", *overrides)
    (root / "logs").mkdir()
    (root / "logs/worker_0.log").write_text("\n".join(lines))
    reported: list[tuple[float, float]] = []
    watcher = TrainWatcher(root / "logs", root, job, lambda step, total, text: reported.append((step, total)))
    watcher.poll()
    files = [root / name for name in ("metrics.jsonl", "completions.jsonl")]
    return reported, *([json.loads(line) for line in file.read_text().splitlines()] for file in files)


def test_a_resumed_run_replaces_the_steps_that_it_repeats(tmp_path):
    for name in ("metrics.jsonl", "completions.jsonl"):
        (tmp_path / name).write_text("".join(f'{{"step": {step}, "old": true}}\n' for step in (1, 2, 3)))
    samples = [*sample_lines(7, "a", "b", "c"), *sample_lines(8, "a", "d", "c")]
    iterations = (2, 2, 3, 4)  # Ray repeats lines, and the last one is incomplete
    lines = [line for step in iterations for line in (*samples, iteration_line(step))]
    reported, metrics, completions = watch(tmp_path, lines, "train.completions_every=2")
    assert reported == [(2, 500), (3, 500)]
    assert [(row["step"], "old" in row) for row in metrics] == [(1, True), (2, False), (3, False)]
    assert [row.get("completion") for row in completions] == [None, "b"]  # logged_completions=1
