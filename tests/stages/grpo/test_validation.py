from stages.grpo.validation import Best


def test_the_first_of_equal_checks_is_the_best():
    best = Best()
    assert [best.see(step, accuracy) for step, accuracy in ((0, 0.2), (10, 0.5), (20, 0.5), (30, 0.4))] == [
        True, True, False, False,
    ]  # fmt: skip
    assert (best.step, best.accuracy, best.misses) == (10, 0.5, 2)


def test_patience_counts_checks_in_a_row():
    best = Best()
    for step, accuracy in enumerate((0.5, 0.4, 0.6, 0.5)):
        best.see(step, accuracy)
    assert not best.enough(2) and not best.enough(None)
    best.see(4, 0.6)
    assert best.enough(2)
