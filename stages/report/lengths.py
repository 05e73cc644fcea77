"""How long completions were, and what waiting for the longest of each step cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.ticker import MaxNLocator

from stages.report import svg
from stages.report.curves import STEPS, points
from stages.report.text import duration, figure, number, percent

BINS = 30


@dataclass(frozen=True)
class Lengths:
    """The histogram and the long tail; either part may be missing."""

    histogram: Markup | None
    legend: tuple[tuple[int, str], ...]
    count: int
    facts: tuple[tuple[str, str], ...]
    """(what, value) pairs."""


def lengths(completions: Sequence[Mapping[str, Any]], metrics: Sequence[Mapping[str, Any]]) -> Lengths:
    """Compare the lengths of the first and the last third of the steps, and measure the long tail."""
    measured = sorted(
        (step, length)
        for row in completions
        if (step := number(row.get("step"))) is not None and (length := number(row.get("length"))) is not None
    )
    facts = list(_quantiles([length for _, length in measured])) + list(_long_tail(metrics))
    if len(measured) < 2:
        return Lengths(None, (), len(measured), tuple(facts))
    first, last = measured[0][0], measured[-1][0]
    third = (last - first) / 3
    early = [length for step, length in measured if step <= first + third]
    late = [length for step, length in measured if step >= last - third]
    groups = [("first third of the steps", early), ("last third", late)] if last > first else [("all", late)]
    legend = tuple((i + 1, label) for i, (label, _) in enumerate(groups)) if len(groups) > 1 else ()
    return Lengths(_histogram(groups), legend, len(measured), tuple(facts))


def _quantiles(values: list[float]) -> list[tuple[str, str]]:
    if not values:
        return []
    ordered = sorted(values)
    picks = (("Median length", 0.5), ("95th percentile", 0.95), ("Longest", 1.0))
    return [(name, f"{figure(ordered[int(q * (len(ordered) - 1))])} tokens") for name, q in picks]


def _long_tail(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Share of decode slots idle behind each step's longest completion (1 - mean/longest), and the time.

    The time is an upper bound: a slot that is done may cost less than one that decodes.
    """
    mean = dict(points(metrics, "completion_length"))
    longest = dict(points(metrics, "completion_length_max"))
    rollout = dict(points(metrics, "rollout_s"))
    idle = {step: 1 - mean[step] / longest[step] for step in mean if longest.get(step, 0) > 0}
    if not idle:
        return []
    facts = [("Decode slots idle behind the longest", percent(sum(idle.values()) / len(idle)))]
    lost = [idle[step] * rollout[step] for step in idle if step in rollout]
    if lost:
        facts.append(("Rollout time lost to the long tail, at most", duration(sum(lost))))
    return facts


def _histogram(groups: list[tuple[str, list[float]]]) -> Markup:
    canvas, plot = svg.axes()
    top = max(max(values) for _, values in groups)
    width = max(1.0, -(-top // BINS))
    edges = [i * width for i in range(int(top // width) + 2)]
    alts = []
    for (label, values), colour in zip(groups, svg.COLOURS, strict=False):
        counts = [0] * (len(edges) - 1)
        for value in values:
            counts[min(max(int(value // width), 0), len(counts) - 1)] += 1
        shares = [100 * count / len(values) for count in counts]
        plot.stairs(shares, edges, color=colour, fill=True, alpha=0.18)
        plot.stairs(shares, edges, color=colour, linewidth=1.6)
        mean = figure(sum(values) / len(values))
        alts.append(f"{label}: mean {mean} tokens over {len(values):,} completions.")
    plot.set_xlim(0, edges[-1])
    plot.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=STEPS))
    plot.yaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
    plot.yaxis.set_major_formatter(lambda value, _: f"{value:.0f} %")
    return svg.inline(canvas, "lengths", "Histogram of completion lengths in tokens. " + " ".join(alts))
