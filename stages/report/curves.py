"""The curves of a training run: their metrics, points and figures, and the same metrics in numbers.

The numbers can be read by pointing at a figure and downloaded as CSV. Both work without a script, so the
page's Content-Security-Policy allows none. Each step has an element over the plot, whose text the style sheet
shows while the pointer is on it. The link to a CSV file contains its data.
"""

import base64
import csv
import io
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from stages.report.artifacts import Points, points
from stages.report.headline import wilson
from stages.report.text import figure, percent, shorten, words

MAX_POINTS, MAX_OVERLAID = 100, 60
"""Points of a line in the figures of a run, and of a sweep, which has many lines."""
WIDTH, HEIGHT = 460, 232
"""Size of a figure in px; text is sized for a column of about this width."""
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",  # equal runs give equal bytes
    "font.size": 11.0,
    "font.sans-serif": ["DejaVu Sans", "Arial"],
}
MUTED, LINE = "#5f676e", "#e6e3dc"
COLOURS = ("#1f6f78", "#c07a1b", "#7a5195", "#b5485d", "#4c7a3f", "#5b6b8c")
"""Colours of the first, second, … series; style.css has the same for legends."""
MAX_LINES = len(COLOURS)
Band = tuple[Points, Points]
"""Lower and upper edge."""
MAX_ROWS = 500
"""Rows of a CSV file. Of longer runs, a row has the means over neighbouring steps."""
MAX_LABEL = 24


@dataclass(frozen=True)
class Reading:
    """The values at one step of a figure, or the means over neighbouring steps."""

    left: float
    """Position in percent of the plot's width."""
    width: float
    steps: str
    values: tuple[tuple[int, str, str], ...]
    """(colour number, label, value) per series that has one; colour 0 and no label for a single series."""


@dataclass(frozen=True)
class Spec:
    """One figure: its metrics (keys of metrics.jsonl) and how to read them."""

    title: str
    keys: tuple[str, ...]
    explanation: str
    share: bool = False
    """Values are 0 to 1 and shown in percent."""
    band: bool = False
    """Shade two standard errors around the mean (see `half_widths`)."""


@dataclass(frozen=True)
class Drawing:
    """A finished figure with its caption and legend."""

    title: str
    explanation: str
    image: str
    alt: str
    """The figure in words, for readers who do not see it."""
    legend: tuple[tuple[int, str], ...]
    """(colour number, label) per series; empty for a single one."""
    last: str
    """The last value, as text; empty for several series."""
    readings: Sequence[Reading]
    csv: str


GRPO = (
    Spec("Reward", ("reward",), "Weighted sum of the reward functions, mean over the step's completions. "
         "Band, here and below: two standard errors over the step's groups.", band=True),
    Spec("Accuracy while sampling", ("accuracy",), "Share of completions that are right. "
         "Band: Wilson's interval, which stays between 0 and 100 %.", share=True, band=True),
    Spec("Reward by function", ("reward/*",), "Mean of each reward function before weighting.", band=True),
    Spec("KL to the reference", ("kl",), "Distance of the policy from its start (k3 estimate, nats).",
         band=True),
    Spec("Loss", ("loss",), "Clipped surrogate with the KL term. It does not measure progress."),
    Spec("Entropy", ("entropy",), "Entropy of the next token, nats. Near zero, sampling no longer explores.",
         band=True),
    Spec("Completion length", ("completion_length", "completion_length_max"), "Tokens: mean and longest.",
         band=True),
    Spec("Signal", ("zero_variance_share", "completion_cut_share", "clip_fraction", "worked_share"),
         "Groups of equal rewards and clipped tokens give no gradient; cut completions reached the token "
         "limit.",
         share=True),
    Spec("Gradient norm", ("grad_norm",), "Before clipping."),
    Spec("Learning rate", ("lr",), "Learning rate of the optimizer, per step."),
    Spec("Throughput", ("tokens_per_s",), "Tokens per second over the complete step."),
)  # fmt: skip
SFT = (
    Spec("Warm-up loss", ("loss",), "Cross-entropy per answer token, nats."),
    Spec("Accuracy checks", ("accuracy_check",), "Greedy, on held-in prompts; they decide when warm-up ends.",
         share=True),
)  # fmt: skip
OVERLAID = (
    Spec("Reward", ("reward",), "Weighted sum of the reward functions, mean over the step's completions."),
    Spec("Accuracy while sampling", ("accuracy",), "Share of completions that are right.", share=True),
    Spec("Accuracy on held-out prompts", ("validation_accuracy",), "Greedy, while training.", share=True),
    *(spec for spec in GRPO if spec.title in ("KL to the reference", "Entropy")),
    Spec("Completion length", ("completion_length",), "Tokens, mean over the step."),
)
"""Figures of several runs; one metric each."""


def draw_all(specs: Sequence[Spec], rows: Sequence[Mapping[str, Any]]) -> list[Drawing]:
    """Draw every figure for which the rows contain at least one number."""
    drawings = []
    for spec in specs:
        series, bands = dict[str, Points](), dict[str, Band]()
        for key in _keys(spec, rows):
            if curve := points(rows, key):
                label = shorten(words(key.removeprefix("reward/")), 60)
                series[label] = curve
                if spec.band:
                    bands[label] = band(rows, key, spec.share)
        if series:
            drawings.append(_drawing(spec, series, bands))
    return drawings


def overlay_all(
    coloured: Mapping[str, Sequence[Mapping[str, Any]]], faint: Sequence[Sequence[Mapping[str, Any]]]
) -> list[Drawing]:
    """Draw each metric of OVERLAID that a coloured run has, as trends: single steps would hide each other.

    Args:
        coloured: label -> rows of metrics.jsonl of a run, which has the same colour in all figures.
        faint: the same of runs without a label.
    """
    drawings = []
    for spec in OVERLAID:
        (key,) = spec.keys
        series = {label: points(rows, key) for label, rows in coloured.items()}
        further = [curve for rows in faint if (curve := points(rows, key))]
        if any(series.values()):
            drawings.append(_drawing(spec, series, {}, further, trends=True))
    return drawings


def half_widths(rows: Sequence[Mapping[str, Any]], key: str) -> Points:
    """Return (step, two standard errors) of a mean over the step's groups, where they were recorded.

    Completions of one group answer the same prompt and are alike: only groups count as independent.
    """
    name, slash, function = key.partition("/")
    return [(step, 2 * error) for step, error in points(rows, f"{name}_stderr{slash}{function}")]


def band(rows: Sequence[Mapping[str, Any]], key: str, share: bool) -> Band:
    """Return the lower and the upper edge of a mean's band, two standard errors wide on each side.

    The band of a share is Wilson's interval for the number of independent trials that have this standard
    error. If all groups are equal, so that the error is 0, the groups are the trials.
    """
    means, groups_of = dict(points(rows, key)), dict(points(rows, "sampled_groups"))
    low, high = Points(), Points()
    for step, half in half_widths(rows, key):
        mean = means.get(step)
        if mean is None:
            continue
        edges = mean - half, mean + half
        if share and 0 <= mean <= 1:
            spread = 4 * mean * (1 - mean)
            trials = spread / half**2 if half**2 > 0 < spread else groups_of.get(step, 0.0)
            edges = wilson(mean, trials, z=2.0) if trials > 0 else (mean, mean)
        low.append((step, edges[0]))
        high.append((step, edges[1]))
    return low, high


def thin(curve: Points, most: int) -> Points:
    """Return at most `most` points: means over groups of neighbours."""
    return [(_mean(steps), mean) for steps, (mean,) in groups({"": curve}, most) if mean is not None]


def smooth(curve: Points) -> Points:
    """Return the centred moving mean over about a tenth of the points; the window shrinks at both ends."""
    half = len(curve) // 20
    result = []
    for i, (step, _) in enumerate(curve):
        reach = min(half, i, len(curve) - 1 - i)
        result.append((step, _mean([value for _, value in curve[i - reach : i + reach + 1]])))
    return result


def _keys(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    keys: list[str] = []
    for key in spec.keys:
        if key.endswith("*"):
            keys += sorted({name for row in rows for name in row if name.startswith(key[:-1])})
        else:
            keys.append(key)
    return keys


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _drawing(
    spec: Spec,
    series: Mapping[str, Points],
    bands: Mapping[str, Band],
    further: Sequence[Points] = (),
    trends: bool = False,
) -> Drawing:
    def draw(axes: Axes) -> None:
        for curve in further:
            trend = smooth(thin(curve, MAX_OVERLAID))
            axes.plot(*zip(*trend, strict=True), color=MUTED, linewidth=0.9, alpha=0.35)
        for (label, curve), colour in zip(series.items(), itertools.cycle(COLOURS), strict=False):
            _plot(axes, curve, bands.get(label, ([], [])), colour, trends)
        _scale(axes, [*series.values(), *further], [high for _, high in bands.values()], spec.share)

    show = percent if spec.share else figure
    alt = " ".join(_describe(label, curve, show) for label, curve in series.items() if curve)
    several = trends or len(series) > 1
    legend = tuple(
        (i % len(COLOURS) + 1, label) for i, (label, curve) in enumerate(series.items()) if curve and several
    )
    last = "" if several else show(next(iter(series.values()))[-1][1])
    most = MAX_OVERLAID if trends else MAX_POINTS
    shown = readings(series, span([*series.values(), *further]), show, most)
    alt = f"{spec.title}. {alt}"
    csv = csv_link(spec.title, series)
    return Drawing(spec.title, spec.explanation, _image_url(draw), alt, legend, last, shown, csv)


def _image_url(draw: Callable[[Axes], None]) -> str:
    """Return a data: URL with the figure that `draw` paints with colours of COLOURS."""
    with matplotlib.rc_context(SETTINGS):
        canvas = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        FigureCanvasSVG(canvas)
        axes = canvas.add_axes((0.115, 0.12, 0.80, 0.83), facecolor="none")  # the plot without labels
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.spines["bottom"].set_color(MUTED)
        axes.grid(axis="y", color=LINE, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, pad=6, labelcolor=MUTED, labelsize=11)
        draw(axes)
        buffer = io.BytesIO()
        canvas.savefig(buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator")))
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def _plot(axes: Axes, full: Points, edges: Band, colour: str, trends: bool) -> None:
    """Plot one series and its band; where there are many steps, each step faintly and the trend strongly."""
    if not full:
        return
    curve = thin(full, MAX_OVERLAID if trends else MAX_POINTS)
    noisy = trends or len(curve) >= 40
    trend = smooth(curve) if noisy else curve
    low, high = (smooth(edge) if noisy else edge for edge in (thin(edge, MAX_POINTS) for edge in edges))
    if len(low) > 1:
        steps, lower, upper = [step for step, _ in low], [y for _, y in low], [y for _, y in high]
        axes.fill_between(steps, lower, upper, color=colour, alpha=0.13, linewidth=0)
    if noisy and not trends:
        axes.plot(*zip(*curve, strict=True), color=colour, linewidth=0.9, alpha=0.35)
    marker = "o" if len(curve) < 8 else ""
    axes.plot(*zip(*trend, strict=True), color=colour, linewidth=1.9, marker=marker, markersize=4)
    axes.plot(*trend[-1], color=colour, marker="o", markersize=5, clip_on=False)


def _scale(axes: Axes, series: Sequence[Points], upper_edges: Sequence[Points], share: bool) -> None:
    low, high = span(series)
    highest = max(value for curve in (*series, *upper_edges) for _, value in curve)
    if share:
        axes.set_ylim(-0.02, max(1.02 * highest, 0.1) if highest < 0.5 else 1.02)
    if low < high:
        axes.set_xlim(low, high)
    axes.text(1.02, 0, "step", transform=axes.transAxes, color=MUTED, va="center")
    axes.locator_params("x", nbins=6, integer=True)
    axes.locator_params("y", nbins=4)
    axes.yaxis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{100 * value:.3g} %" if share else f"{value:.4g}")
    )


def _describe(label: str, curve: Points, show: Any) -> str:
    (first_step, first), (last_step, last) = curve[0], curve[-1]
    low, high = min(curve, key=lambda p: p[1]), max(curve, key=lambda p: p[1])
    if len(curve) == 1:
        return f"{label}: {show(first)} at step {figure(first_step)}."
    return (
        f"{label}: {show(first)} at step {figure(first_step)}, {show(last)} at step {figure(last_step)}; "
        f"lowest {show(low[1])} at step {figure(low[0])}, highest {show(high[1])} at step {figure(high[0])}."
    )


def span(curves: Sequence[Points]) -> tuple[float, float]:
    """Return the first and the last step on the x axis; the last point has some room to its right."""
    steps = [step for curve in curves for step, _ in curve]
    return min(steps), max(steps) + 0.01 * (max(steps) - min(steps))


def readings(
    series: Mapping[str, Points], axis: tuple[float, float], show: Callable[[object], str], most: int
) -> list[Reading]:
    """Return at most `most` readings, which together cover the plot, whose x axis has the range `axis`."""
    grouped = groups(series, most)
    centres = [(steps[0] + steps[-1]) / 2 for steps, _ in grouped]
    edges = [axis[0], *((a + b) / 2 for a, b in pairwise(centres)), axis[1]]
    scale = 100 / (axis[1] - axis[0]) if axis[1] > axis[0] else 0
    result = []
    for (steps, means), (low, high) in zip(grouped, pairwise(edges), strict=True):
        values = [
            (i, label[:MAX_LABEL], show(mean)) if len(series) > 1 else (0, "", show(mean))
            for i, (label, mean) in enumerate(zip(series, means, strict=True), start=1)
            if mean is not None
        ]
        name = f"step {figure(steps[0])}"
        name += f" to {figure(steps[-1])}, means" if len(steps) > 1 else ""
        left = scale * (low - axis[0])
        result.append(Reading(left, scale * (high - low) if scale else 100, name, tuple(values)))
    return result


def csv_link(title: str, series: Mapping[str, Points]) -> str:
    """Return a data: URL with a CSV file: a column of steps and one per series.

    Each column's name begins with the title, so that no text of a user begins a cell, which a spreadsheet
    could take for a formula.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["step", *(f"{title}: {label}" if len(series) > 1 else title for label in series)])
    for steps, means in groups(series, MAX_ROWS):
        step = sum(steps) / len(steps)
        writer.writerow([f"{step:.8g}", *("" if mean is None else f"{mean:.6g}" for mean in means)])
    return f"data:text/csv;charset=utf-8,{quote(text.getvalue(), safe=',:')}"


def groups(series: Mapping[str, Points], most: int) -> list[tuple[list[float], list[float | None]]]:
    """Return at most `most` groups of neighbouring steps, each with the mean of every series in it."""
    steps = sorted({step for curve in series.values() for step, _ in curve})
    size = max(1, -(-len(steps) // most))
    values = [dict(curve) for curve in series.values()]
    result = []
    for group in (steps[i : i + size] for i in range(0, len(steps), size)):
        known = [[curve[step] for step in group if step in curve] for curve in values]
        result.append((group, [sum(part) / len(part) if part else None for part in known]))
    return result
