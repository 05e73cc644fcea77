import pytest

from stages.report.timeline import timeline


def spans(**stages):
    return {name: {"started": 1000.0 + start, "ended": 1000.0 + end} for name, (start, end) in stages.items()}


def test_positions_are_shares_of_the_run():
    line = timeline(spans(fetch=(0, 20), grpo=(25, 95), export=(90, 100)))
    assert line.wall_s == 100
    assert [(bar.stage, bar.left, bar.width) for bar in line.bars] == [
        ("fetch", 0, 20), ("grpo", 25, 70), ("export", 90, 10),
    ]  # fmt: skip
    assert not any(bar.reused for bar in line.bars)
    assert line.ticks[0] == (0, "0") and line.ticks[1:] == ((30, "30 s"), (60, "1 min"), (90, "1 min 30 s"))


def test_stages_before_a_long_silence_were_reused():
    line = timeline(spans(fetch=(-5000, -4900), convert=(-4900, -4890), sft=(0, 60), grpo=(61, 100)))
    assert {bar.stage for bar in line.bars if bar.reused} == {"fetch", "convert"}
    assert line.wall_s == 100 and line.started == 1000


def test_committing_a_large_artifact_is_no_silence():
    stages = spans(split=(0, 10), grpo=(250, 300))
    assert timeline(stages).bars[0].reused
    stages["split"]["files"] = {"a": {"size": 15e9}, "b": {"size": "?"}}
    assert not timeline(stages).bars[0].reused


def test_a_stage_that_runs_beside_a_long_one_is_of_this_run():
    line = timeline(spans(fetch=(0, 1), sft=(1, 400), grpo=(401, 500), strategy=(0, 1)))
    assert not any(bar.reused for bar in line.bars)


@pytest.mark.parametrize(
    "manifest", [{}, {"started": "x", "ended": 3}, {"started": 5, "ended": 4}, {"started": 1}]
)
def test_unusable_times_are_left_out(manifest):
    assert timeline({"grpo": manifest}).bars == ()


def test_an_instant_run_can_be_drawn():
    line = timeline(spans(fetch=(0, 0)))
    assert line.bars[0].left == 0 and line.bars[0].width == 0 and len(line.ticks) < 10
