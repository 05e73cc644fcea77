"""The charts of training: their metrics, the numbers that the page carries for them, and the same as tables.

Plotly draws them in the browser (charts.js), from a file of its own next to the page. A page carries every
number once, as means over neighbouring steps where a run has more steps than a chart has points. The same
numbers stand below each chart in a table, which also shows what a reader without scripts needs.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from stages.report.artifacts import Points, points
from stages.report.headline import wilson
from stages.report.language import translate
from stages.report.text import figure, number, percent, shorten, words

PLOTLY = "plotly.min.js"
"""File that draws the charts; it stands next to every page with charts."""
MAX_POINTS, MAX_COMPARED, MAX_SWEPT = 1500, 500, 150
"""Points of a line on the page of a run, of a comparison, and of a sweep, which has many lines."""
MAX_SERIES = 12
"""Lines of one chart. Each has a combination of one of six colours and one of three dashes."""
MAX_TOLD = 3
"""Lines of a chart whose highest and lowest values stand below it."""
DIGITS = 5
"""Significant digits of the numbers that a page carries."""
TABLE_ROWS = 12
Band = tuple[Points, Points]
"""Lower and upper edge."""
Values = list[float | None]


@dataclass(frozen=True)
class Spec:
    """One chart: its metrics (keys of metrics.jsonl) and how to read them."""

    title: str
    keys: tuple[str, ...]
    explanation: str
    share: bool = False
    """Values are 0 to 1 and shown in percent."""
    band: bool = False
    """Shade two standard errors around the mean (see `half_widths`)."""


GRPO = (
    Spec("Reward", ("reward",), "Weighted sum of the reward functions, mean over the step's completions. "
         "Band, here and below: two standard errors over the step's groups.", band=True),
    Spec("Accuracy while sampling", ("accuracy",), "Share of completions that are right. "
         "Band: Wilson's interval, which stays between 0 and 100 %.", share=True, band=True),
    Spec("Accuracy on held-out prompts", ("validation_accuracy",), "Greedy, while training.", share=True),
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
    Spec("Sampling and training", ("rollout_logprob_diff", "rollout_prob_diff_max", "rollout_kl"),
         "Differences between the program that samples and the one that trains: of a completion's mean "
         "log-probability, the largest of a token's probability, and the KL. Zero is best."),
    Spec("Turns", ("turns", "turns_max", "tool_calls"),
         "Messages of a conversation, prompt and answers of functions included, mean and most; calls of "
         "functions per completion."),
    Spec("Failed calls", ("tool_failed_share",), "Share of calls that no function answered.", share=True),
    Spec("Staleness", ("staleness", "staleness_max"),
         "Updates between the weights that generated a token and those that train on it."),
    Spec("Ages of tokens", ("staleness_share/*",), "Share of the step's tokens that are so many updates old.",
         share=True),
    Spec("Waiting", ("wait_share",), "Share of the step in which training waits for completions.",
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
    Spec("Accuracy while sampling", ("accuracy",), "Share of completions that are right.", share=True),
    Spec("Reward", ("reward",), "Weighted sum of the reward functions, mean over the step's completions."),
    *(spec for spec in GRPO if spec.title in ("KL to the reference", "Entropy")),
    Spec("Completion length", ("completion_length",), "Tokens, mean over the step."),
)
"""Charts of several runs; one metric each."""


class Source:
    """The steps of one metrics.jsonl, in groups of neighbours if there are more than `most`."""

    def __init__(self, rows: Sequence[Mapping[str, Any]], most: int) -> None:
        """Take the rows of a metrics.jsonl; rows without a step are left out."""
        self.rows = rows
        merged: dict[float, dict[str, Any]] = {}
        for row in rows:
            if (step := number(row.get("step"))) is not None:  # a resumed run may repeat steps
                merged.setdefault(step, {}).update(row)
        steps = sorted(merged)
        self.size = max(1, math.ceil(len(steps) / most))
        """Steps of each point."""
        self.groups = [steps[i : i + self.size] for i in range(0, len(steps), self.size)]
        ordered = [merged[step] for step in steps]
        self.axes: dict[str, list[float]] = {"step": [_mean(group) for group in self.groups]}
        """Position of each point: step; where they are known, tokens, and seconds since the first began."""
        for name, along in (("tokens", _tokens(ordered)), ("seconds", _seconds(ordered))):
            if along is not None:  # of a group, the state at its end
                by_step = dict(zip(steps, along, strict=True))
                self.axes[name] = [by_step[group[-1]] for group in self.groups]

    def values(self, curve: Points) -> Values:
        """Return the mean of a metric over the steps of each point; None where it has none."""
        known = dict(curve)
        found = [[known[step] for step in group if step in known] for group in self.groups]
        return [_mean(part) if part else None for part in found]


@dataclass(frozen=True)
class Series:
    """One line."""

    label: str
    source: Source
    curve: Points
    """All of its points."""
    values: Values
    edges: tuple[Values, Values] | None = None
    """Lower and upper edge of its band."""
    faint: bool = False
    """One of many lines without a label."""


@dataclass(frozen=True)
class Chart:
    """One chart, with its numbers as text."""

    id: str
    """Name of the chart within its page, and of the files that it is saved as."""
    title: str
    explanation: str
    share: bool
    series: Sequence[Series]
    alt: str
    """The chart in words, for readers who do not see it."""
    last: str
    """The last value with its step; empty for several lines."""
    table: tuple[list[str], list[list[str]]]
    """Head and rows of the numbers at some steps."""
    legend: Sequence[tuple[int, int, int, str]]
    """Numbers of a line, its colour and its dash, all from 0, and its label; empty for a single line."""
    extremes: Sequence[str]
    """Highest and lowest value of each line in words; empty for many lines."""

    @property
    def steps_per_point(self) -> int:
        """Steps whose mean a point is."""
        return max(series.source.size for series in self.series)


def style_of(line: int) -> tuple[int, int]:
    """Return the numbers of colour and dash of a chart's line; 18 lines have different ones."""
    return line % 6, (line + line // 6) % 3


def plotly() -> bytes:
    """Return the content of PLOTLY, from the installed package."""
    return (files("plotly") / "package_data" / PLOTLY).read_bytes()


def charts(specs: Sequence[Spec], rows: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Return every chart for which the rows contain at least one number."""
    source, result = Source(rows, MAX_POINTS), []
    for spec in specs:
        series = []
        for key in _keys(spec, rows)[:MAX_SERIES]:
            if curve := points(rows, key):
                edges = None
                if spec.band and (drawn := band(rows, key, spec.share))[0]:
                    edges = source.values(drawn[0]), source.values(drawn[1])
                label = shorten(words(key.removeprefix("reward/")), 60)
                series.append(Series(label, source, curve, source.values(curve), edges))
        if series:
            result.append(_chart(spec, series, several=len(series) > 1))
    return result


def overlaid(
    named: Mapping[str, Sequence[Mapping[str, Any]]],
    faint: Sequence[Sequence[Mapping[str, Any]]] = (),
    most: int = MAX_COMPARED,
) -> list[Chart]:
    """Return a chart of all runs for each metric of OVERLAID that a named run has.

    Args:
        named: label -> rows of metrics.jsonl of a run, whose lines look the same in all charts.
        faint: the same of runs without a label.
        most: points of a line.
    """
    sources = [(label, Source(rows, most), False) for label, rows in named.items()]
    sources += [("", Source(rows, most), True) for rows in faint]
    result = []
    for spec in OVERLAID:
        (key,) = spec.keys
        series = [
            Series(label, source, curve := points(source.rows, key), source.values(curve), faint=is_faint)
            for label, source, is_faint in sources
        ]
        if any(line.curve and not line.faint for line in series):
            result.append(_chart(spec, series, several=True))
    return result


def data(drawn: Iterable[Chart], shared: bool = False) -> dict[str, Any]:
    """Return the numbers of charts as charts.js reads them.

    `shared`: lines of one name belong to one run, so that they are hidden in all charts at once.
    """
    sources: dict[int, int] = {}
    axes: list[dict[str, Values]] = []
    result = {}
    for chart in drawn:
        lines = []
        for series in chart.series:
            if id(series.source) not in sources:
                sources[id(series.source)] = len(axes)
                axes.append({name: _rounded(values, 8) for name, values in series.source.axes.items()})
            line: dict[str, Any] = {"name": series.label, "source": sources[id(series.source)]}
            line["y"] = _rounded(series.values)
            if series.edges is not None:
                line["low"], line["high"] = map(_rounded, series.edges)
            lines.append(line | ({"faint": True} if series.faint else {}))
        result[chart.id] = {"title": chart.title, "share": chart.share, "series": lines}
    return {"sources": axes, "charts": result, "shared": shared}


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


def _keys(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    keys: list[str] = []
    for key in spec.keys:
        if key.endswith("*"):
            keys += sorted({name for row in rows for name in row if name.startswith(key[:-1])})
        else:
            keys.append(key)
    return keys


def _chart(spec: Spec, series: Sequence[Series], several: bool) -> Chart:
    show = percent if spec.share else figure
    named = [line for line in series if not line.faint]
    alt = " ".join(_describe(line.label, line.curve, show) for line in named if line.curve)
    legend = [(i, *style_of(i), line.label) for i, line in enumerate(named) if several and line.curve]
    last = "" if several else _last(series[0], show)
    table = _table([line for line in named if line.curve], show, several)
    title, name = translate(spec.title), spec.title.lower().replace(" ", "_")
    ends = _extremes(named, show, several) if len(named) <= MAX_TOLD else []
    alt = f"{title}. {alt}"
    return Chart(name, title, translate(spec.explanation), spec.share, series, alt, last, table, legend, ends)


def _last(line: Series, show: Callable[[object], str]) -> str:
    """Return the last value of a line, which may lie before the last step, with its step."""
    step, value = line.curve[-1]
    if step == line.source.groups[-1][-1]:
        return translate("last step: {value}", value=show(value))
    return translate("step {step}: {value}", step=figure(step), value=show(value))


def _extremes(named: Sequence[Series], show: Callable[[object], str], several: bool) -> list[str]:
    """Return the highest and the lowest value of each line, with their steps."""
    told = []
    for line in named:
        if len(line.curve) > 1:
            low, high = min(line.curve, key=lambda p: p[1]), max(line.curve, key=lambda p: p[1])
            same = translate("{value} at every step", value=show(high[1]))
            text = same if show(high[1]) == show(low[1]) else translate(
                "highest {high} at step {high_step}, lowest {low} at step {low_step}",
                high=show(high[1]), high_step=figure(high[0]), low=show(low[1]), low_step=figure(low[0]),
            )  # fmt: skip
            told.append(f"{line.label}: {text}" if several else text)
    return told


def _table(series: Sequence[Series], show: Callable[[object], str], several: bool) -> Any:
    """Return head and rows of at most TABLE_ROWS points, from the first to the last, evenly chosen.

    Lines of different runs may have different steps; the table has those of the longest run.
    """
    longest = max((line.source for line in series), key=lambda source: len(source.groups))
    chosen = evenly(range(len(longest.groups)), TABLE_ROWS)
    by_step = [dict(zip(map(_steps, line.source.groups), line.values, strict=True)) for line in series]
    rows = []
    for i in chosen:
        step = _steps(longest.groups[i])
        rows.append([step, *(show(values.get(step)) for values in by_step)])
    heads = (line.label if several else translate("Value") for line in series)
    return [translate("Step"), *heads], rows


def evenly(items: Sequence[Any], most: int) -> list[Any]:
    """Return at most `most` items, the first and the last among them, at equal distances."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _steps(group: Sequence[float]) -> str:
    return _name(group[0], group[-1])


@functools.cache
def _name(first: float, last: float) -> str:
    return figure(first) if first == last else f"{figure(first)}–{figure(last)}"


def _describe(label: str, curve: Points, show: Any) -> str:
    (first_step, first), (last_step, last) = curve[0], curve[-1]
    low, high = min(curve, key=lambda p: p[1]), max(curve, key=lambda p: p[1])
    if len(curve) == 1:
        return translate(
            "{label}: {value} at step {step}.", label=label, value=show(first), step=figure(first_step)
        )
    return translate(
        "{label}: {first} at step {first_step}, {last} at step {last_step}; lowest {low} at step {low_step}, "
        "highest {high} at step {high_step}.",
        label=label, first=show(first), first_step=figure(first_step), last=show(last),
        last_step=figure(last_step), low=show(low[1]), low_step=figure(low[0]), high=show(high[1]),
        high_step=figure(high[0]),
    )  # fmt: skip


def _tokens(rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
    """Return the tokens sampled up to the end of each step; None if a row does not tell its own."""
    total, result = 0.0, []
    for row in rows:
        speed, seconds = number(row.get("tokens_per_s")), number(row.get("step_s"))
        if speed is None or seconds is None:
            return None
        total += speed * seconds
        result.append(total)
    return result


def _seconds(rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
    """Return the seconds from the begin of the first step to the end of each; None if a row has no time."""
    times = [number(row.get("time_s")) for row in rows]
    known = [time for time in times if time is not None]
    if not known or len(known) < len(times):
        return None
    began = known[0] - (number(rows[0].get("step_s")) or 0.0)
    return [time - began for time in known]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _rounded(values: Iterable[float | None], digits: int = DIGITS) -> Values:
    """Return values with few significant digits; whole numbers as such, which are shorter."""
    rounded = (None if value is None else float(f"{value:.{digits}g}") for value in values)
    return [
        int(value) if value is not None and value.is_integer() and abs(value) < 1e15 else value
        for value in rounded
    ]
