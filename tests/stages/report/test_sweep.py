import pytest

from stages.report.sweep import render
from stages.report.text import neutral
from tests.stages.report.reading import Page
from tests.stages.report.synthetic import sweep_of
from tests.stages.report.test_page import HOSTILE, check


def rows(page, source):
    """The text of each row of the table of points."""
    table = source[source.index('id="points"') : source.index("</section>", source.index('id="points"'))]
    return [Page("<tr" + row).text for row in table.split("<tr")[2:]]


def test_the_best_point_is_first_with_the_command_that_reproduces_it():
    source = render(**sweep_of(8))
    page = check(source, scripts=1)
    # (7 i mod 8) / 16 is highest for i = 1 (7/16); 6 failed and 7 is invalid.
    assert "Best: point 1" in page.text and "93.8 %" in page.text
    assert page.pres == ["grpoflow run report.title=run_1", "grpoflow sweep seed=0,1"]
    assert [row[0] for row in rows(page, source)] == list("12345067")
    assert source.count('<tr class="best">') == 1
    assert "+53.8" in rows(page, source)[0] and "best" in rows(page, source)[0]
    assert "../../report/c1/index.html" in page.attributes("href")
    assert "../../report/c6/index.html" not in page.attributes("href"), "a report that is not there"


def test_a_shared_training_is_a_single_line_with_the_common_values_of_its_points():
    page = check(render(**sweep_of(8)), scripts=1)
    reward = next(label for label in page.attributes("alt") if label.startswith("Reward. "))
    assert "0, 1: train.beta=0.00: " in reward and "2, 3: train.beta=0.01: " in reward
    assert reward.count("at step 80; lowest") == 4, "four trainings of eight points, one line each"
    assert "Accuracy on held-out prompts" not in page.text, "nobody measured it"


def test_a_run_has_the_same_colour_in_every_figure():
    inputs = sweep_of(8)
    for row in inputs["metrics"]["grpo/b0"]:
        del row["kl"]
    source = render(**inputs)
    kl = source[source.index("<h3>KL") :].split("</figcaption>")[0]
    assert "0, 1: " not in kl and '<li class="k2">2, 3: train.beta=0.01' in kl
    check(source, scripts=1)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_few_points(count):
    source = render(**{**sweep_of(count), "manifests": {}, "metrics": {}})
    page = check(source, scripts=1)
    assert "No point has recorded a GRPO step" in page.text
    assert "ran once" not in page.text
    assert ("No point has a result yet" in page.text) == (count == 0)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_shown_as_text(text):
    page = check(render(**sweep_of(8, value=text, message=text, command=text)), scripts=1)
    assert page.pres == [neutral(text)] * 2
    if len(text) < 300:
        assert page.text.count(neutral(text)) >= 6
    for character in ("\u202e", "\x00", "\x1b", "\u2066"):
        assert character not in page.source


def test_the_largest_page_is_smaller_than_two_megabytes():
    text = '"' * 5000
    page = check(render(**sweep_of(1200, steps=300, value=text, message=text)), scripts=1)
    assert "more are in table.csv" not in page.text
    assert "more are not drawn" in page.text
