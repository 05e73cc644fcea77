import json
from collections import deque
from dataclasses import replace

import numpy as np
import pytest

from pipeline.config.load import load as compose
from stages.grpo.sft import batches, reached
from tests.stages.grpo.test_workers import metrics, prepare, run


def test_every_epoch_sees_each_row_at_most_once_in_an_order_that_the_seed_decides():
    order = batches(rows=10, size=3, seed=0)
    epochs = [np.concatenate([next(order) for _ in range(3)]) for _ in range(2)]
    for epoch in epochs:
        assert len(set(epoch)) == 9 and set(epoch) <= set(range(10))
    assert epochs[0].tolist() != epochs[1].tolist()
    first, again, second = (next(batches(100, 50, seed=seed)).tolist() for seed in (1, 1, 2))
    assert first == again != second


def test_a_single_lucky_check_does_not_stop_training():
    config = compose([]).sft
    assert config.stop_accuracy == 0.4 and config.stop_checks == 3
    assert not reached(deque([0.9], maxlen=3), config)
    assert not reached(deque([0.2, 0.4, 0.59], maxlen=3), config)
    assert reached(deque([0.4, 0.5, 0.6], maxlen=3), config)
    assert not reached(deque([1.0, 1.0, 1.0], maxlen=3), replace(config, stop_accuracy=None))


SMALL = [
    "model.hidden_size=32", "model.num_hidden_layers=1", "model.intermediate_size=48",
    "dataset.train_rows=96", "dataset.test_rows=8",
    "layout.train.model_parallel=1", "layout.generate.data_parallel=1", "sft.check_prompts=16",
    "sft.batch_size=16", "sft.warmup_steps=2", "sft.check_every=2", "sft.stop_accuracy=null",
    "sft.steps=3", "sft.checkpoint_every=2",
]  # fmt: skip


@pytest.mark.slow
def test_a_killed_run_goes_on_to_the_same_last_bit(tmp_path):
    """Three steps, and what a kill after the checkpoint of step 2 would leave, typed again."""
    config = prepare(tmp_path, SMALL)
    output = run(tmp_path, "sft", config)
    expected, weights = metrics(output), (output / "train/rank_0/model.safetensors").read_bytes()
    output = run(tmp_path, "sft", config)  # an empty output; its work directory has the checkpoint
    assert json.loads((output / "result.json").read_text(encoding="utf-8"))["resumed_from"] == 2
    rows = metrics(output)
    keys = ("step", "loss", "grad_norm", "lr", "accuracy_check")
    assert [[row.get(key) for key in keys] for row in rows] == [
        [row.get(key) for key in keys] for row in expected
    ]
    assert len(rows) == 3 and rows[2]["time_s"] > expected[2]["time_s"]  # it was trained again
    assert (output / "train/rank_0/model.safetensors").read_bytes() == weights
