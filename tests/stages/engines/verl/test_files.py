"""Files that verl and its workers write: one JSON object per line, characters not escaped."""

import json

import pytest

from pipeline.config.load import load
from stages.base.errors import InputError
from stages.engines.verl import results, rewards
from stages.engines.verl.job import Job

OVERRIDES = [
    "experiment=verl_7b", "model.path=/models/m", "train.prompts_per_step=8", "rollout.num_generations=4",
    "layout=dp4_mp1_pp1", "engine.mini_batch_size=null", "reward.max_failures=2",
]  # fmt: skip


def test_completions_may_contain_unicode_line_separators(tmp_path):
    source, target = tmp_path / "rollouts", tmp_path / "completions.jsonl"
    source.mkdir()
    texts = ["a\u2028b", "c\x85d\u2029", "e\nf\r", "\x1c"]
    rows = [{"input": "?", "output": text, "gts": "1", "score": 0.5} for text in texts]
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    (source / "1.jsonl").write_text("".join(lines), encoding="utf-8", newline="\n")
    train = load(["experiment=verl_7b", "model.path=/m", "train.steps=1", "train.completions_every=1"]).train
    results.write_completions(source, target, train)
    entries = [json.loads(line) for line in target.read_text(encoding="utf-8").split("\n")[:-1]]
    assert [entry["completion"] for entry in entries] == texts[: train.logged_completions]
    assert {entry["step"] for entry in entries} == {1}


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"input": "?"}', b'"x"', b"\xff", b"[" * 100_000])
def test_malformed_completions_are_left_out(tmp_path, line):
    good = json.dumps({"input": "?", "output": "5", "gts": "1", "score": 0.5}).encode()
    source, target = tmp_path / "rollouts", tmp_path / "completions.jsonl"
    source.mkdir()
    (source / "1.jsonl").write_bytes(line + b"\n" + good + b"\n" + good[:9])
    train = load(["experiment=verl_7b", "model.path=/m", "train.steps=1", "train.completions_every=1"]).train
    assert results.write_completions(source, target, train) == [f"{source}/1.jsonl:1"]
    assert [json.loads(row)["completion"] for row in target.read_text().splitlines()] == ["5"]


def test_saved_steps_without_metrics_are_found(tmp_path):
    file = tmp_path / "metrics.jsonl"
    assert results.unrecorded_steps(file, 0) == []
    file.write_text("".join(json.dumps({"step": step, "loss": 0.5}) + "\n" for step in (1, 2, 4)))
    assert results.unrecorded_steps(file, 4) == [3]
    assert results.unrecorded_steps(file, 5) == [3, 5]


def write(report, *steps):
    lines = [json.dumps({"step": step, "faults": {"maths": f"failed in {step}"}}) for step in steps]
    report.write_text("".join(f"{line}\n" for line in lines))


def test_a_step_with_too_many_failures_is_refused(tmp_path):
    report, run = tmp_path / rewards.REPORT, Job.from_run(load(OVERRIDES))
    rewards.check_steps(report, run)
    write(report, 1, 1, 2, 3, 3)
    rewards.check_steps(report, run)  # five failures, but not more than two in any step
    write(report, 1, 2, 1, 2, 2)
    with report.open("a") as file:
        file.write('{"step": 2, "fau')  # by a worker that was killed
    with pytest.raises(InputError, match=r"failed for 3 of 32 completions of step 2.*: failed in 2"):
        rewards.check_steps(report, run)
