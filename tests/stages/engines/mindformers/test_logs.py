"""Lines as mindformers writes them, with and without a pipeline, in sink mode and not."""

import pytest

from stages.engines.mindformers.logs import read_step

SINK = (
    "2025-07-29 10:00:00,123 - mindformers./output/log[mindformers/core/callback/callback.py:484] - INFO - "
    "{ Epoch:[  2/  3], step:[    5/  600], loss: 1.125, per_step_time: 500ms, lr: 9.5e-07, "
    "overflow cond: False, loss_scale: 4096.0, global_norm: [1.5], train_throughput_per_npu: 123.456T"
)


def test_a_step_is_read_with_grpoflows_metric_names():
    row, total = read_step(SINK, tokens=32 * 1024) or ({}, 0)
    assert row == {
        "step": 605, "loss": 1.125, "step_s": 0.5, "tokens_per_s": 65536, "lr": 9.5e-7, "grad_norm": 1.5,
        "overflow": 0.0,
    }  # fmt: skip
    assert total == 1800


@pytest.mark.parametrize(
    ("logged", "meant"),
    [
        ("loss:[1.125/1.250], ", {"loss": 1.125}),
        ("loss:   nan, ", {"loss": pytest.approx(float("nan"), nan_ok=True)}),
    ],
)
def test_losses_are_read_in_every_form(logged, meant):
    row, _ = read_step(SINK.replace("loss: 1.125, ", logged), 1) or ({}, 0)
    assert row["loss"] == meant["loss"]


def test_metrics_that_are_not_logged_are_left_out():
    line = SINK.replace("lr: 9.5e-07, ", "").replace("global_norm: [1.5]", "global_norm: None")
    row, _ = read_step(line.replace("per_step_time: 500ms", "per_step_time: 0ms"), 1) or ({}, 0)
    assert row == {"step": 605, "loss": 1.125, "overflow": 0.0}


@pytest.mark.parametrize("cond", ["True", "[ True]", "1"])
def test_an_overflow_is_read(cond):
    row, _ = read_step(SINK.replace("overflow cond: False", f"overflow cond: {cond}"), 1) or ({}, 0)
    assert row["overflow"] == 1.0
