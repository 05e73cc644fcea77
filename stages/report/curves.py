"""The curves of a training run: which ones, their points, and how they are drawn."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from stages.report import svg
from stages.report.text import figure, number, percent, shorten, words

MAX_POINTS = 400
MAX_OVERLAID = 120
"""Per line, where there are many."""
STEPS = (1, 2, 2.5, 5, 10)
"""Steps of axis ticks, times a power of ten."""
Points = list[tuple[float, float]]


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
    svg: Markup
    legend: tuple[tuple[int, str], ...]
    """(colour number, label) per series; empty for a single one."""
    last: str
    """The last value, as text."""


GRPO = (
    Spec("Reward", ("reward",), "Weighted sum of the reward functions, mean over the step's completions. "
         "Band, here and below: two standard errors over the step's groups.", band=True),
    Spec("Accuracy while sampling", ("accuracy",), "Share of completions that are right.", share=True,
         band=True),
    Spec("Reward by function", ("reward/*",), "Mean of each reward function before weighting.", band=True),
    Spec("KL to the reference", ("kl",), "How far the policy has moved from its start (k3 estimate, nats).",
         band=True),
    Spec("Loss", ("loss",), "Clipped surrogate with the KL term. It is no measure of progress."),
    Spec("Entropy", ("entropy",), "Of the next token, nats. Near zero, sampling explores no more.",
         band=True),
    Spec("Completion length", ("completion_length", "completion_length_max"), "Tokens: mean and longest.",
         band=True),
    Spec("Signal", ("zero_variance_share", "completion_cut_share", "clip_fraction", "worked_share"),
         "Groups of equal rewards teach nothing, cut completions had no room to end, clipped tokens give no "
         "gradient.",
         share=True),
    Spec("Gradient norm", ("grad_norm",), "Before clipping."),
    Spec("Learning rate", ("lr",), "Of the optimizer, per step."),
    Spec("Throughput", ("tokens_per_s",), "Tokens per second over the whole step."),
)  # fmt: skip
SFT = (
    Spec("Warm-up loss", ("loss",), "Cross-entropy per answer token, nats."),
    Spec("Accuracy checks", ("accuracy_check",), "Greedy, on prompts held in; the warm-up stops by it.",
         share=True),
)  # fmt: skip


def draw_all(specs: Sequence[Spec], rows: Sequence[Mapping[str, Any]], prefix: str) -> list[Drawing]:
    """Draw every figure for which the rows hold at least one number."""
    drawings = []
    for i, spec in enumerate(specs):
        series = {key: points(rows, key) for key in _keys(spec, rows)}
        series = {key: curve for key, curve in series.items() if curve}
        if series:
            bands = {key: half_widths(rows, key) for key in series} if spec.band else {}
            drawings.append(_draw(spec, series, bands, f"{prefix}{i}"))
    return drawings


def overlay(spec: Spec, series: Mapping[str, Points], others: Sequence[Points], name: str) -> Drawing:
    """One metric of several runs in one figure: trends only, since every step of every run hides all.

    Args:
        spec: the metric.
        series: label -> its points, of at most as many runs as there are colours; one without points keeps
            its colour free, so that a run has the same in all figures. At least one has points.
        others: points of further runs, drawn faintly and without a label.
        name: unique on the page.
    """
    canvas, plot = svg.axes()
    show = percent if spec.share else figure
    for curve in others:
        trend = smooth(thin(curve, MAX_OVERLAID))
        plot.plot([x for x, _ in trend], [y for _, y in trend], color=svg.MUTED, linewidth=0.9, alpha=0.35)
    for curve, colour in zip(series.values(), svg.COLOURS, strict=False):
        if curve:
            _line(plot, smooth(thin(curve, MAX_OVERLAID)), colour, noisy=False)
    _scale(plot, [*series.values(), *others], spec.share)
    descriptions = " ".join(_describe(label, curve, show) for label, curve in series.items() if curve)
    legend = tuple((i + 1, label) for i, (label, curve) in enumerate(series.items()) if curve)
    return Drawing(
        spec.title, spec.explanation, svg.inline(canvas, name, f"{spec.title}. {descriptions}"), legend, ""
    )


def points(rows: Sequence[Mapping[str, Any]], key: str) -> Points:
    """(step, value) of one metric by step; of a step repeated after a resume, the later one."""
    curve: dict[float, float] = {}
    for row in rows:
        step, value = number(row.get("step")), number(row.get(key))
        if step is not None and value is not None:
            curve[step] = value
    return sorted(curve.items())


def half_widths(rows: Sequence[Mapping[str, Any]], key: str) -> Points:
    """(step, two standard errors) of a mean over the step's groups, where the trainer recorded them.

    Completions of one group answer the same prompt and are alike: only groups count as independent.
    """
    name, slash, function = key.partition("/")
    return [(step, 2 * error) for step, error in points(rows, f"{name}_stderr{slash}{function}")]


def _keys(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    keys: list[str] = []
    for key in spec.keys:
        if key.endswith("*"):
            keys += sorted({name for row in rows for name in row if name.startswith(key[:-1])})
        else:
            keys.append(key)
    return keys[: len(svg.COLOURS)]


def thin(curve: Points, most: int = MAX_POINTS) -> Points:
    """At most `most` points: means over equal runs of neighbours."""
    if len(curve) <= most:
        return curve
    per = -(-len(curve) // most)
    chunks = [curve[i : i + per] for i in range(0, len(curve), per)]
    return [(_mean([x for x, _ in chunk]), _mean([y for _, y in chunk])) for chunk in chunks]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def smooth(curve: Points) -> Points:
    """Centred moving mean over about a tenth of the points; the window shrinks at both ends."""
    half = len(curve) // 20
    result = []
    for i, (step, _) in enumerate(curve):
        reach = min(half, i, len(curve) - 1 - i)
        window = curve[i - reach : i + reach + 1]
        result.append((step, sum(value for _, value in window) / len(window)))
    return result


def _draw(spec: Spec, series: Mapping[str, Points], bands: Mapping[str, Points], name: str) -> Drawing:
    canvas, plot = svg.axes()
    alts, lasts = [], []
    show = percent if spec.share else figure
    for (key, full), colour in zip(series.items(), svg.COLOURS, strict=False):
        curve = thin(full)
        noisy = len(curve) >= 40
        _band(plot, curve, dict(thin(bands.get(key, []))), colour, noisy, spec.share)
        _line(plot, curve, colour, noisy)
        alts.append(_describe(_label(key), full, show))
        lasts.append(show(full[-1][1]))
    _scale(plot, series.values(), spec.share)
    legend = tuple((i + 1, _label(key)) for i, key in enumerate(series)) if len(series) > 1 else ()
    drawing = svg.inline(canvas, name, f"{spec.title}. " + " ".join(alts))
    return Drawing(spec.title, spec.explanation, drawing, legend, lasts[0] if len(series) == 1 else "")


def _line(plot: Axes, curve: Points, colour: str, noisy: bool) -> None:
    steps, values = [x for x, _ in curve], [y for _, y in curve]
    if noisy:  # every step faintly, their trend strongly
        plot.plot(steps, values, color=colour, linewidth=0.9, alpha=0.35)
        values = [y for _, y in smooth(curve)]
    marker = "o" if len(curve) < 8 else ""
    plot.plot(steps, values, color=colour, linewidth=1.9, marker=marker, markersize=4, solid_capstyle="round")
    plot.plot(steps[-1:], values[-1:], color=colour, marker="o", markersize=5, linestyle="", clip_on=False)


def _band(
    plot: Axes, curve: Points, widths: Mapping[float, float], colour: str, noisy: bool, share: bool
) -> None:
    both = [(step, value, widths[step]) for step, value in curve if step in widths]
    if len(both) < 2:
        return
    edges = [[(step, value + sign * width) for step, value, width in both] for sign in (-1, 1)]
    if noisy:  # around the trend, as the strong line is
        edges = [smooth(edge) for edge in edges]
    low, high = ([min(max(y, 0.0), 1.0) if share else y for _, y in edge] for edge in edges)
    plot.fill_between([step for step, _, _ in both], low, high, color=colour, alpha=0.13, linewidth=0)


def _scale(plot: Axes, series: Collection[Points], share: bool) -> None:
    values = [value for curve in series for _, value in curve]
    steps = [step for curve in series for step, _ in curve]
    if share:
        plot.set_ylim(-0.02, max(1.02 * max(values), 0.1) if max(values) < 0.5 else 1.02)
    if min(steps) < max(steps):
        plot.set_xlim(min(steps), max(steps) + 0.01 * (max(steps) - min(steps)))
    plot.text(1.02, 0, "step", transform=plot.transAxes, color=svg.MUTED, va="center")
    plot.xaxis.set_major_locator(MaxNLocator(6, integer=True, steps=STEPS))
    plot.yaxis.set_major_locator(MaxNLocator(4, steps=STEPS))
    plot.xaxis.set_major_formatter(FuncFormatter(lambda value, _: figure(value)))
    show = (lambda value, _: f"{100 * value:.3g} %") if share else (lambda value, _: axis(value))
    plot.yaxis.set_major_formatter(FuncFormatter(show))


def axis(value: float) -> str:
    """Format a tick label without trailing zeros."""
    if abs(value) < 1e-12:
        return "0"
    text = f"{value:.4g}" if 1e-3 <= abs(value) < 1e5 else f"{value:.3g}"
    text = text.replace("e-0", "e-").replace("e+0", "e")
    return "−" + text[1:] if value < 0 else text


def _label(key: str) -> str:
    return shorten(words(key.removeprefix("reward/")), 60)


def _describe(label: str, curve: Points, show: Any) -> str:
    (first_step, first), (last_step, last) = curve[0], curve[-1]
    low, high = min(curve, key=lambda p: p[1]), max(curve, key=lambda p: p[1])
    if len(curve) == 1:
        return f"{label}: {show(first)} at step {figure(first_step)}."
    return (
        f"{label}: {show(first)} at step {figure(first_step)}, {show(last)} at step {figure(last_step)}; "
        f"lowest {show(low[1])} at step {figure(low[0])}, highest {show(high[1])} at step {figure(high[0])}."
    )
