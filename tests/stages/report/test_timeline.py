import pytest

from stages.report.timeline import timeline


def spans(**stages):
    return {name: {"started": 1000.0 + start, "ended": 1000.0 + end} for name, (start, end) in stages.items()}


def test_positions_are_shares_of_the_run():
    line = timeline(spans(fetch=(0, 20), grpo=(25, 95), export=(90, 100)), None)
    assert line.wall_s == 100
    assert [(bar.stage, bar.left, bar.width) for bar in line.bars] == [
        ("fetch", 0, 20), ("grpo", 25, 70), ("export", 90, 10),
    ]  # fmt: skip
    assert not any(bar.reused for bar in line.bars)
    assert line.ticks[0] == (0, "0") and line.ticks[1:] == ((30, "30 s"), (60, "1 min"), (90, "1 min 30 s"))


def test_stages_that_ended_before_the_run_are_reused():
    stages = spans(fetch=(-5000, -4900), convert=(-9, -5), sft=(0.5, 60), grpo=(61, 100))
    line = timeline(stages, began=1000.0)
    assert [bar.stage for bar in line.bars if bar.reused] == ["fetch", "convert"]
    assert line.wall_s == 99.5 and line.started == 1000.5
    assert not any(bar.reused for bar in timeline(stages, began=900.0).bars[1:])


def test_a_stage_that_another_run_started_is_shown():
    line = timeline(spans(sft=(-10, 40), grpo=(50, 90)), began=1000.0)
    assert [(bar.reused, bar.left, bar.width) for bar in line.bars] == [(False, 0, 50), (False, 60, 40)]


def test_all_stages_may_be_reused():
    line = timeline(spans(fetch=(0, 1), grpo=(1, 9)), began=2000.0)
    assert all(bar.reused and bar.width == 0 for bar in line.bars)
    assert (line.started, line.ended, line.wall_s) == (None, 1009, 0)


@pytest.mark.parametrize(
    "manifest", [{}, {"started": "x", "ended": 3}, {"started": 5, "ended": 4}, {"started": 1}]
)
def test_unusable_times_are_left_out(manifest):
    assert timeline({"grpo": manifest}, None).bars == ()


def test_an_instant_run_can_be_drawn():
    line = timeline(spans(fetch=(0, 0)), None)
    assert line.bars[0].left == 0 and line.bars[0].width == 0 and len(line.ticks) < 10
