import itertools
import random

import numpy as np
import pytest

from stages.report.importance import BOTTOM, MAX_LINES, TOP, Measured, importances, parallel


def sweep(count, seed=5):
    draw = random.Random(seed)
    return [
        Measured(i, {"a": f"{draw.choice((1, 10, 2))}", "b": draw.choice(("x", "y"))}, draw.random())
        for i in range(count)
    ]


def test_eta_squared_is_what_the_variance_within_groups_leaves():
    points = sweep(60)
    results = np.array([point.result for point in points])
    for each in importances(points, ["a", "b"]):
        values = np.array([point.chosen[each.key] for point in points])
        fitted = np.array([results[values == value].mean() for value in values])
        assert each.eta_squared == pytest.approx(1 - np.var(results - fitted) / np.var(results))
        assert dict(each.means) == pytest.approx(
            {value: results[values == value].mean() for value in set(values)}
        )


def test_the_figure_by_chance_is_the_mean_over_all_assignments_of_results():
    points = sweep(6)
    results = [point.result for point in points]
    shares = []
    for order in itertools.permutations(results):
        shuffled = [Measured(p.number, p.chosen, y) for p, y in zip(points, order, strict=True)]
        shares.append(importances(shuffled, ["a"])[0].eta_squared)
    assert importances(points, ["a"])[0].by_chance == pytest.approx(np.mean(shares))


def test_an_important_key_precedes_a_key_that_only_numbers_the_points():
    points = [Measured(i, {"name": f"run_{i}", "lr": str(10.0 ** -(i % 2))}, i % 2 / 10) for i in range(6)]
    first, second = importances(points, ["name", "lr"])
    assert (first.key, first.eta_squared, first.by_chance) == ("lr", pytest.approx(1), 0.2)
    assert [name for name, _ in first.means] == ["0.1", "1.0"] and second.by_chance == 1


def test_many_numeric_values_are_grouped_into_quarters():
    points = [Measured(i, {"lr": f"{i}e-5"}, i / 20) for i in range(20)]
    (only,) = importances(points, ["lr"])
    assert [name for name, _ in only.means] == [f"{i}e-5 to {i + 4}e-5" for i in (0, 5, 10, 15)]
    assert only.by_chance == 3 / 19 and 0.9 < only.eta_squared < 1


@pytest.mark.parametrize("results", [[], [0.5], [0.4, 0.5], [0.5, 0.5, 0.5]])
def test_too_few_or_equal_results_have_no_importance(results):
    assert importances([Measured(i, {"a": str(i)}, y) for i, y in enumerate(results)], ["a"]) == []


def test_lines_meet_their_values_on_each_axis():
    points = sorted(sweep(1000), key=lambda point: -point.result)
    axes, lines = parallel(points, ["a", "b"])
    assert [value for _, value in axes[0].ticks] == ["1", "2", "10"] and len(axes) == 3
    assert 0 < len(lines) <= MAX_LINES and lines[0].opacity == 1 > lines[-1].opacity
    heights = [{value: y for y, value in axis.ticks} for axis in axes[:2]]
    for line, point in zip(lines, points[:: -(-1000 // MAX_LINES)], strict=True):
        corners = [tuple(map(float, corner.split(","))) for corner in line.path.split()]
        expected = [heights[0][point.chosen["a"]], heights[1][point.chosen["b"]]]
        assert [y for _, y in corners[:2]] == pytest.approx(expected, abs=0.05)
        assert TOP <= corners[2][1] <= BOTTOM and f"point {point.number}: " in line.title
    assert float(lines[0].path.split(",")[-1]) == TOP
