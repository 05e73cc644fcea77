import json
import zipfile
from types import SimpleNamespace

import pytest

from stages.engines.outside import MALFORMED
from stages.engines.verl.results import (
    METRIC_NAMES,
    checkpoint_defect,
    read_metrics,
    unrecorded_steps,
    write_completions,
)
from stages.grpo.metrics import OUTSIDE, SCHEMA

COMPLETION = {"input": "1+1?", "output": "2\u20282", "gts": "2", "score": 1.0, "step": 2}


def test_metrics_have_names_of_grpoflow():
    assert {*METRIC_NAMES.values()} <= SCHEMA.keys() | OUTSIDE.keys()


def test_a_line_of_a_step():
    data = {"critic/score/mean": 0.5, "actor/grad_norm": None, "timing_s/step": 12, "perf/mfu/actor": 0.1}
    assert read_metrics(json.dumps({"step": 3, "data": data})) == {"step": 3, "reward": 0.5, "step_s": 12.0}


@pytest.mark.parametrize("line", ["", "{", "[]", '{"step": 3}', '{"step": 3, "data": {"actor/lr": "x"}}'])
def test_a_malformed_line_raises_an_error_that_the_watcher_catches(line):
    with pytest.raises(MALFORMED):
        read_metrics(line)


def test_steps_that_were_saved_and_not_logged(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text('{"step": 1}\n{"step": 3}\n')
    assert unrecorded_steps(file, 4) == [2, 4]


def job(cards, strategy="fsdp2"):
    return SimpleNamespace(train_cards=cards, engine=SimpleNamespace(strategy=strategy))


@pytest.fixture
def checkpoint(tmp_path):
    (tmp_path / "actor").mkdir()
    for rank in range(2):
        for part in ("model", "optim", "extra_state"):
            with zipfile.ZipFile(tmp_path / f"actor/{part}_world_size_2_rank_{rank}.pt", "w") as file:
                file.writestr("data", "x")
    (tmp_path / "data.pt").touch()
    return tmp_path


def test_a_complete_checkpoint(checkpoint):
    assert checkpoint_defect(job(2), checkpoint) is None


def test_a_checkpoint_without_its_last_file(checkpoint):
    (checkpoint / "data.pt").unlink()
    assert checkpoint_defect(job(2), checkpoint) == "data.pt is missing"


def test_a_truncated_shard(checkpoint):
    (checkpoint / "actor/optim_world_size_2_rank_1.pt").write_bytes(b"PK")
    assert checkpoint_defect(job(2), checkpoint) == "optim_world_size_2_rank_1.pt is truncated"


def test_a_checkpoint_of_another_number_of_workers(checkpoint):
    assert checkpoint_defect(job(4), checkpoint) == (
        "model_world_size_4_rank_0.pt is missing; it was saved as model_world_size_2_rank_0.pt"
    )


def test_an_empty_megatron_checkpoint(tmp_path):
    (tmp_path / "actor").mkdir()
    (tmp_path / "data.pt").touch()
    assert checkpoint_defect(job(2, "megatron"), tmp_path) == "it is empty"


def test_completions_of_the_steps_that_are_kept(tmp_path):
    train = SimpleNamespace(steps=4, completions_every=2, logged_completions=2)
    source, target = tmp_path / "rollouts", tmp_path / "completions.jsonl"
    source.mkdir()
    line = json.dumps(COMPLETION, ensure_ascii=False)
    (source / "1.jsonl").write_text(f"{line}\n")
    (source / "2.jsonl").write_text(f"{line}\n{{}}\n{line}\n")
    malformed = write_completions(source, target, train)
    row = {"step": 2, "prompt": "1+1?", "completion": "2\u20282", "solution": "2", "reward": 1.0}
    assert [json.loads(line) for line in target.read_bytes().splitlines()] == [row]
    assert malformed == [f"{source / '2.jsonl'}:2"]
