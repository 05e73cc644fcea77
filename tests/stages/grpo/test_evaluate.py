import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from pipeline.cli.serve_check import differs
from stages.grpo.answers import Answers, outcomes, pass_at_k, samples, summary, worked_share
from stages.grpo.data import Examples, Prompts, true_lengths
from stages.grpo.metrics import StepLog, read_rows
from stages.grpo.stage import Best


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_pass_at_k_is_the_mean_over_all_choices_of_k(k):
    right = np.random.default_rng(k).random((6, 5)) < 0.3
    choices = list(itertools.combinations(range(5), k))
    expected = np.mean([[row[list(choice)].any() for choice in choices] for row in right])
    assert pass_at_k(right, k) == pytest.approx(expected)


def answers(right, sampled):
    right = np.array(right)
    sampled = np.array(sampled, bool).reshape(-1, 2)
    return Answers(["1+1=2\n#### 2", "#### 2"], right, right.astype(np.float32), sampled)


def test_summary():
    result = summary(answers([True, False], [1, 0]), answers([True, True], [1, 1]), k=2)
    assert [result[key] for key in ("accuracy_sft", "accuracy_grpo", "gain", "prompts")] == [0.5, 1.0, 0.5, 2]
    assert result["pass_at_k"] == {"k": 2, "sft": 1.0, "grpo": 1.0}
    assert result["mean_at_k"] == {"k": 2, "sft": 0.5, "grpo": 1.0}
    assert "pass_at_k" not in summary(answers([True, False], []), answers([True, True], []), k=2)


def test_rows_say_how_many_samples_of_the_first_prompts_were_right():
    def judged(sampled):
        right = np.array([True, False])
        scores = SimpleNamespace(total=right.astype(np.float32), parts={})
        return Answers(["2", "3"], right, scores, np.array(sampled, bool))

    prompts = Prompts(np.zeros((2, 1), np.int32), np.ones(2, np.int32), ("1+1", "2+2"), ("2", "4"))
    first, second = samples(prompts, judged([[1, 0, 1]]), judged([[1, 1, 1]]), 5)
    assert (first["samples"], first["before_samples_right"], first["after_samples_right"]) == (3, 2, 3)
    assert "samples" not in second and "after_samples_right" not in second


def test_outcomes_count_each_prompt_once():
    before, after = (np.random.default_rng(seed).random(500) < 0.4 for seed in (0, 1))
    counts = outcomes(before, after)
    assert counts["fixed"] + counts["both_right"] == after.sum()
    assert counts["broken"] + counts["both_right"] == before.sum()
    assert counts["fixed"] == sum(a and not b for b, a in zip(before, after, strict=True))
    assert sum(counts.values()) == 500
    result = summary(answers([True, False], []), answers([False, True], []), k=2)
    assert result["outcomes"] == {"fixed": 1, "broken": 1, "both_right": 0, "both_wrong": 0}


def test_worked_share():
    assert worked_share(["1+1=2\n#### 2", "#### 2", "#### 2\n", ""]) == 0.25


def test_the_first_of_equal_checks_is_the_best_and_patience_counts_checks_in_a_row():
    best = Best()
    checks = (0, 0.2), (10, 0.5), (20, 0.4), (30, 0.6), (40, 0.6)
    assert [best.add_check(*check) for check in checks] == [True, True, False, True, False]
    assert (best.step, best.accuracy, best.misses) == (30, 0.6, 1)
    assert not best.should_stop(2) and not best.should_stop(None)
    best.add_check(50, 0.6)
    assert best.should_stop(2)


def test_true_lengths_count_padding_ids_inside_a_row():
    ids = np.array([[5, 0, 6, 0], [0, 0, 0, 0], [1, 2, 3, 4]])
    assert true_lengths(ids, pad=0).tolist() == [3, 0, 4]


def test_examples_with_a_prompt_of_the_checks_are_left_out():
    prompt = np.array([[1, 2, 0], [1, 2, 3], [1, 0, 0]], np.int32)
    length = np.array([2, 3, 1], np.int32)
    examples = Examples(prompt, length, np.arange(6).reshape(3, 2), np.ones((3, 2), np.float32))
    checked = Prompts(prompt[[0]], length[[0]], ("a",), ("1",))
    left = examples.without(checked)
    assert len(left) == 2 and left.completion.tolist() == [[2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("right", "total", "expected", "is_different"),
    [
        (952, 1024, 0.93, False), (92, 1024, 0.93, True), (0, 16, 0.0, False), (15, 16, 1.0, False),
        (8, 16, 1.0, True),
        (937, 1024, 0.93, False), (930, 1024, 0.93, True),  # 0.915: two standard errors are 0.016
    ],
)  # fmt: skip
def test_two_standard_errors_are_the_bound_of_serve_check(right, total, expected, is_different):
    assert differs(right, total, expected) is is_different


@pytest.mark.parametrize("line", [b"{", b"[1]", b'{"step": 1.5}', b"\0" * 20, b"[" * 100_000, b"\xff"])
def test_a_malformed_row_loses_no_other_row(tmp_path, line, capsys):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n' + line + b'\n{"step": 2}\n' + line + b'\n{"step": 3}\n{"step": 4}')
    assert [row["step"] for row in read_rows(path)] == [1, 2, 3]
    assert f"{path}: line 2 is malformed and left out" in capsys.readouterr().err
    assert [row["step"] for row in StepLog(path, 2).rows] == [1, 2]


def test_resuming_drops_rows_after_the_checkpoint_and_a_new_run_begins_empty(tmp_path):
    path = tmp_path / "logs" / "metrics.jsonl"
    assert read_rows(path) == []
    StepLog(path, 0).append({"step": step, "loss": 1.0} for step in (1, 2, 3))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"step": 4, "lo')  # killed while writing
    log = StepLog(path, 2)
    log.append([{"step": 3, "loss": 2.0}])
    assert [(row["step"], row["loss"]) for row in read_rows(path)] == [(1, 1.0), (2, 1.0), (3, 2.0)]
    assert StepLog(path, 0).rows == [] and path.read_text(encoding="utf-8") == ""
