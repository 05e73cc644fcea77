import pytest

from stages.report.compare import MAX_RUNS, differences, render
from stages.report.text import neutral
from tests.stages.report.reading import Page
from tests.stages.report.synthetic import CONFIG, compared
from tests.stages.report.test_page import HOSTILE, check


def test_results_curves_and_differing_values_of_all_runs():
    source = render(compared(3))
    page = check(source)
    reward = next(label for label in page.attributes("alt") if label.startswith("Reward. "))
    assert [f"run {i}: " in reward for i in range(4)] == [True, True, True, False]
    assert "Only one value differs." in page.text
    results = source[source.index('id="results"') : source.index('id="curves"')]
    assert Page(results).text.count("40.0 %") == 3, "greedy accuracy before GRPO"
    assert page.pres == [f"grpoflow run report.title=run_{i}" for i in range(3)]


def test_differences_at_any_depth_and_absent_keys_are_shown():
    changed = {**CONFIG, "train": {**CONFIG["train"], "beta": 0.5}, "extra": {"key": True}}
    assert differences([CONFIG, changed]) == [["train.beta", "0.01", "0.5"], ["extra.key", "–", "true"]]
    assert differences([CONFIG, dict(CONFIG)]) == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_text(text):
    page = check(render(compared(2, label=text, command=text)))
    assert len(text) > 3000 or page.pres == [neutral(text)] * 2
    for character in ("\u202e", "\x00", "\x1b", "\u2066"):
        assert character not in page.source


def test_the_largest_page_is_smaller_than_two_megabytes():
    runs = compared(MAX_RUNS, steps=5000, label='"' * 5000, command='"' * 50_000)
    check(render(runs))
