"""Completion lengths, and the cost of waiting for the longest completion of each step."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from stages.report.curves import Drawing, points
from stages.report.figures import COLOURS, image
from stages.report.text import duration, figure, number, percent

BINS = 30


def histogram(completions: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """Draw the lengths of the first and the last third of the steps; return None below two lengths."""
    measured = _measured(completions)
    if len(measured) < 2:
        return None
    first, last = measured[0][0], measured[-1][0]
    third = (last - first) / 3
    groups = {"all": [length for _, length in measured]}
    if last > first:
        groups = {
            "first third of the steps": [length for step, length in measured if step <= first + third],
            "last third": [length for step, length in measured if step >= last - third],
        }
    longest = max(map(max, groups.values()))
    width = max(1.0, -(-longest // BINS))
    edges = [i * width for i in range(int(longest // width) + 2)]

    def draw(axes: Axes) -> None:
        for values, colour in zip(groups.values(), COLOURS, strict=False):
            weights = [1 / len(values)] * len(values)
            axes.hist(values, edges, weights=weights, color=colour, histtype="stepfilled", alpha=0.18)
            axes.hist(values, edges, weights=weights, color=colour, histtype="step", linewidth=1.6)
        axes.set_xlim(0, edges[-1])
        axes.locator_params("x", nbins=6, integer=True)
        axes.locator_params("y", nbins=4)
        axes.yaxis.set_major_formatter(PercentFormatter(1, symbol=" %"))

    means = [
        f"{label}: mean {figure(sum(values) / len(values))} tokens over {len(values):,} completions."
        for label, values in groups.items()
    ]
    alt = "Histogram of completion lengths in tokens. " + " ".join(means)
    legend = tuple((i + 1, label) for i, label in enumerate(groups)) if len(groups) > 1 else ()
    caption = f"Tokens per completion, {len(measured):,} recorded completions."
    return Drawing("Histogram", caption, image(draw, alt), legend, "")


def length_facts(
    completions: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Return quantiles of the lengths, and the share of decode slots idle behind the longest completion.

    The lost time is an upper bound: a slot that is done may cost less than one that decodes.
    """
    lengths = sorted(length for _, length in _measured(completions))
    picks = (("Median length", 0.5), ("95th percentile", 0.95), ("Longest", 1.0)) if lengths else ()
    facts = [(name, f"{figure(lengths[int(q * (len(lengths) - 1))])} tokens") for name, q in picks]
    mean = dict(points(metrics, "completion_length"))
    longest = dict(points(metrics, "completion_length_max"))
    rollout = dict(points(metrics, "rollout_s"))
    idle = {step: 1 - mean[step] / longest[step] for step in mean if longest.get(step, 0) > 0}
    if idle:
        facts.append(("Decode slots idle behind the longest", percent(sum(idle.values()) / len(idle))))
    lost = [idle[step] * rollout[step] for step in idle if step in rollout]
    if lost:
        facts.append(("Rollout time lost to the long tail, at most", duration(sum(lost))))
    return facts


def _measured(completions: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Return sorted (step, length) of the completions."""
    pairs = ((number(row.get("step")), number(row.get("length"))) for row in completions)
    return sorted((step, length) for step, length in pairs if step is not None and length is not None)
