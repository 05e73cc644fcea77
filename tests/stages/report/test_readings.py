import csv
import random
from urllib.parse import unquote

import pytest

from stages.report.curves import GRPO, draw_all
from stages.report.readings import MAX_ROWS, csv_link, readings, span
from stages.report.text import figure
from tests.stages.report.synthetic import metrics


def read_csv(link):
    """The rows of a link's CSV file."""
    return list(csv.reader(unquote(link.removeprefix("data:text/csv;charset=utf-8,")).splitlines()))


def test_the_csv_file_has_every_step_and_value():
    rows = metrics(80)
    drawing = next(drawing for drawing in draw_all(GRPO, rows) if drawing.title == "Completion length")
    header, *lines = read_csv(drawing.csv)
    assert header == [
        "step", "Completion length: completion length", "Completion length: completion length max",
    ]  # fmt: skip
    assert [float(line[0]) for line in lines] == [row["step"] for row in rows]
    for i, key in ((1, "completion_length"), (2, "completion_length_max")):
        assert [float(line[i]) for line in lines] == pytest.approx([row[key] for row in rows], rel=1e-5)


def test_long_runs_have_means_over_neighbouring_steps():
    draw = random.Random(4)
    curve = [(float(step), draw.random()) for step in range(1, 4 * MAX_ROWS + 1)]
    lines = read_csv(csv_link("Loss", {"loss": curve}))[1:]
    expected = [sum(y for _, y in curve[i : i + 4]) / 4 for i in range(0, len(curve), 4)]
    assert [float(line[1]) for line in lines] == pytest.approx(expected, rel=1e-5)
    assert [line[0] for line in lines[:2]] == ["2.5", "6.5"]
    first, *_, last = readings({"loss": curve}, span([curve]), figure, 100)
    assert first.steps == "step 1 to 20, means" and last.steps == "step 1,981 to 2,000, means"
    assert last.values == ((0, "", figure(sum(y for _, y in curve[-20:]) / 20)),)


@pytest.mark.parametrize(
    "steps", [[7.0], [1.0, 2.0], [25.0, 50.0, 100.0, 103.0], [float(i) for i in range(999)]]
)
def test_readings_cover_the_plot_and_each_contains_its_step(steps):
    curve = [(step, 1.0) for step in steps]
    low, high = span([curve])
    shown = readings({"loss": curve}, (low, high), figure, 100)
    assert len(shown) <= 100 and shown[0].left == 0
    right = 0.0
    for reading in shown:
        assert reading.left == pytest.approx(right)
        right = reading.left + reading.width
    assert right == pytest.approx(100)
    if 1 < len(steps) <= 100:
        for step, reading in zip(steps, shown, strict=True):
            assert reading.left <= 100 * (step - low) / (high - low) <= reading.left + reading.width
            assert reading.steps == f"step {step:g}"
