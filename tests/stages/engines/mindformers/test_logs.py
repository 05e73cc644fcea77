"""Lines as mindformers writes them, with and without a pipeline."""

import math

import pytest

from stages.engines.mindformers.stage import read_step

SINK = (
    "2025-07-29 10:00:00,123 - mindformers./output/log[mindformers/core/callback/callback.py:484] - INFO - "
    "{ Epoch:[  2/  3], step:[    5/  600], loss: 1.125, per_step_time: 500ms, lr: 9.5e-07, "
    "overflow cond: False, loss_scale: 4096.0, global_norm: [1.5], train_throughput_per_npu: 123.456T"
)
ROW = {
    "step": 605, "loss": 1.125, "step_s": 0.5, "tokens_per_s": 65536, "lr": 9.5e-7, "grad_norm": 1.5,
    "overflow": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("logged", "written", "changes"),
    [
        ("", "", {}), ("loss: 1.125, ", "loss:[1.125/1.250], ", {}), ("lr: 9.5e-07, ", "", {"lr": None}),
        ("global_norm: [1.5]", "global_norm: None", {"grad_norm": None}),
        ("500ms", "0ms", {"step_s": None, "tokens_per_s": None}),
        *(("cond: False", f"cond: {cond}", {"overflow": 1.0}) for cond in ("True", "[ True]", "1")),
    ],
)  # fmt: skip
def test_a_step_is_read_with_grpoflows_metric_names(logged, written, changes):
    """Metrics that are not logged (None) are left out."""
    expected = {name: value for name, value in (ROW | changes).items() if value is not None}
    assert read_step(SINK.replace(logged, written), tokens=32 * 1024) == (expected, 1800)


def test_a_loss_may_be_no_number():
    row, _ = read_step(SINK.replace("loss: 1.125", "loss:   nan"), 1) or ({}, 0)
    assert math.isnan(row["loss"])
