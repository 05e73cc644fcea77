from stages.report.lengths import lengths


def test_the_long_tail_is_what_waits_for_the_longest():
    rows = [{"step": 1, "completion_length": 30, "completion_length_max": 40, "rollout_s": 8.0},
            {"step": 2, "completion_length": 20, "completion_length_max": 40, "rollout_s": 4.0}]  # fmt: skip
    facts = dict(lengths([], rows).facts)
    assert facts["Decode slots idle behind the longest"] == "37.5 %"  # mean of 1/4 and 1/2
    assert facts["Rollout time lost to the long tail, at most"] == "4.0 s"  # 8/4 + 4/2


def test_early_and_late_completions_are_compared():
    rows = [{"step": step, "length": 10 * step} for step in range(1, 10) for _ in range(3)]
    found = lengths(rows, [])
    assert found.count == 27 and [label for _, label in found.legend] == [
        "first third of the steps",
        "last third",
    ]
    assert "first third of the steps: mean 20 tokens over 9" in found.histogram
    assert dict(found.facts)["Longest"] == "90 tokens"


def test_nothing_recorded():
    assert lengths([], []).facts == () and lengths([{"step": 1}], []).histogram is None
    assert lengths([{"step": 1, "length": 0}] * 2, []).histogram
