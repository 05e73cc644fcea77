"""Checks on held-out prompts by the real verl, next to greedy answers of transformers."""

import json
from pathlib import Path

import pytest

from stages.rewards.correctness import are_right
from tests.upstream.programs import ask
from tests.upstream.verl.product import MAX_TOKENS, STEPS

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
GREEDY = Path(__file__).parent / "greedy.py"
HELD_OUT = 12


def test_the_accuracy_is_that_of_transformers_and_the_best_checkpoint_is_the_result(verl, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [json.loads(line) for line in (verl.data / "prompts.jsonl").read_text().splitlines()]
    prompts = [f"{row['question']}=" for row in rows]
    request = {"model": str(verl.data / "model"), "prompts": prompts, "max_tokens": MAX_TOKENS}
    texts = ask(verl.python, GREEDY, request)
    for row, text in zip(rows, texts, strict=True):  # a prompt whose answer has a number asks for it
        row["answer"] = next((part for part in _numbers(text) if are_right(None, [text], [part])[0]), "0")
    data = tmp_path / "prompts.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    overrides = [f"dataset.path={data}", "train.learning_rate=1e-12", "train.validate_every=1"]
    overrides += [f"train.validation_prompts={HELD_OUT}", "train.checkpoint_every=1", "train.keep_best=true"]
    made = verl.train(tmp_path / "run", *overrides, "train.keep_checkpoints=1")
    (tokenized,) = (tmp_path / "run/store/tokenize").iterdir()
    kept = parquet.read_table(tokenized / "train.parquet").to_pylist()
    training, held_out = kept[:-HELD_OUT], kept[-HELD_OUT:]
    answers = dict(zip(prompts, texts, strict=True))
    expected = _accuracy(held_out, answers)
    assert 0.2 < expected < 0.8
    for others in (training, training[:HELD_OUT], kept):  # a run that asked these would be noticed
        assert _accuracy(others, answers) != pytest.approx(expected)
    metrics = [json.loads(line) for line in (made.grpo / "metrics.jsonl").read_text().splitlines()]
    assert [row["validation_accuracy"] for row in metrics] == [pytest.approx(expected)] * STEPS
    assert all(row["validation_s"] > 0 for row in metrics)
    result = json.loads((made.grpo / "result.json").read_text())
    assert (result["steps"], result["best_step"], result["checkpoint"]) == (STEPS, 1, "global_step_1")
    trained = {prompt for step in made.completions() for prompt, *_ in step}
    assert not trained & {f"{row['prompt'][0]['content'].removesuffix('=')}=" for row in held_out}


def _accuracy(rows, answers):
    """Return the share of rows whose prompt is answered with the ground truth."""
    given = [answers[f"{row['prompt'][0]['content'].removesuffix('=')}="] for row in rows]
    return sum(are_right(None, given, [row["reward_model"]["ground_truth"] for row in rows])) / len(rows)


def _numbers(text):
    """Return the digits of a text in runs, the last one first."""
    return "".join(each if each.isdigit() else " " for each in text).split()[::-1]
