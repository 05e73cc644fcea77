"""The tables of a report: configuration, completions, data, time, and the origin of its artifacts."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from stages.base.keys import leaves
from stages.report.artifacts import Artifacts, mapping, points
from stages.report.language import translate
from stages.report.text import figure, number, percent, shorten, words
from stages.rewards.config import COMPARISONS, OF_MINDRLHF

MAX_ROWS, MAX_VALUE = 400, 300
SECTION_ORDER = (
    "model", "dataset", "layout", "tokenize", "sft_data", "convert", "split", "sft", "mindformers", "rollout",
    "reward", "train", "evaluate", "export",
)  # fmt: skip
"""Most informative sections first; others follow by name."""
VERDICTS = {
    (False, True): "fixed",
    (True, False): "broken",
    (True, True): "both right",
    (False, False): "both wrong",
}
"""(right before, right after) -> verdict."""
MAX_CARDS, MAX_TEXT = 8, 300
COUNTS = ("rows_in", "rows_out", "dropped", "truncated", "duplicates")
PERCENTILES = ("50", "95", "100")
STEP_PARTS = {"rollout_s": "Rollout", "reference_s": "Reference", "train_s": "Update"}
MAX_FILES, MAX_INPUTS = 24, 20


@dataclass(frozen=True)
class Section:
    """One section as a table."""

    name: str
    columns: list[str]
    """Names of groups with equal keys (the roles of a layout); empty for a plain list of values."""
    rows: list[tuple[str, ...]]
    """Key and its value in each column; a single value belongs to all columns."""
    readers: list[str]
    """Stages that read it; empty for top-level keys such as seed."""


def sections(run: Artifacts) -> list[Section]:
    """Return all sections, the top-level keys first."""
    config = run.config()
    top_level = {name: value for name, value in config.items() if not isinstance(value, dict)}
    ordered = [name for name in SECTION_ORDER if name in config]
    ordered += sorted(set(config) - set(top_level) - set(ordered))
    result = [Section(translate("run"), *_table(top_level), [])] if top_level else []
    for name in ordered:
        readers = [stage for stage, values in run.manifests.items() if name in mapping(values.get("config"))]
        result.append(Section(name, *_table(config[name]), readers))
    return result


def differences(run: Artifacts, defaults: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Return (key, value, default) of every value that a stage read and that differs from its default."""
    if not defaults:
        return []
    read = run.config()
    usual = dict(value_rows({name: value for name, value in defaults.items() if name in read}))
    return [(key, text, usual.get(key, "–")) for key, text in value_rows(read) if text != usual.get(key)]


def value_rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return nested values as (dotted key, text) rows, at most 400."""
    return [(key, plain(value)) for key, value in islice(leaves(values), MAX_ROWS)]


def plain(value: object) -> str:
    """Return a configuration value as text of at most 300 characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return shorten(text, MAX_VALUE)


def _table(values: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, ...]]]:
    groups = {key: value for key, value in values.items() if isinstance(value, dict) and value}
    if len(groups) < 2 or len({frozenset(group) for group in groups.values()}) > 1:
        return [], [*value_rows(values)]
    rows: list[tuple[str, ...]] = [
        *value_rows({key: value for key, value in values.items() if key not in groups})
    ]
    for key in next(iter(groups.values())):
        rows.append((str(key), *(plain(group[key]) for group in groups.values())))
    return list(groups), rows[:MAX_ROWS]


def verdict(row: Mapping[str, Any]) -> str:
    """Return whether GRPO fixed or broke the answer of a row of samples.jsonl; empty if that is not known."""
    before, after = (_is_right(row, side) for side in ("before", "after"))
    return "" if before is None or after is None else VERDICTS[before, after]


def _is_right(row: Mapping[str, Any], side: str) -> bool | None:
    recorded = row.get(f"{side}_right")
    if isinstance(recorded, bool):
        return recorded
    return judged(row.get(f"{side}_parts"))


def judged(parts: object) -> bool | None:
    """Return whether an answer is right by the values of its reward functions; None if none of them tells."""
    values = (number(mapping(parts).get(judge)) for judge in (*COMPARISONS, *OF_MINDRLHF))
    part = next((value for value in values if value is not None), None)
    return None if part is None else part > 0


def verdicts(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the number of rows with each verdict as a phrase; empty if no row has one."""
    counts = Counter(map(verdict, rows))
    return _phrase(counts) if any(counts[name] for name in VERDICTS.values()) else ""


def outcomes(evaluation: Mapping[str, Any]) -> str:
    """Return the number of all held-out prompts with each verdict as a phrase; empty if it is not known."""
    recorded = mapping(evaluation.get("outcomes"))
    counts = {name: number(recorded.get(name.replace(" ", "_"))) for name in VERDICTS.values()}
    return "" if None in counts.values() else _phrase(counts)


def _phrase(counts: Mapping[str, Any]) -> str:
    return ", ".join(f"{figure(counts[name])} {translate(name)}" for name in VERDICTS.values())


def counts(evaluation: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return (verdict, number of prompts, its share) of all held-out prompts, else of the recorded ones."""
    recorded = mapping(evaluation.get("outcomes"))
    known = {name: number(recorded.get(name.replace(" ", "_"))) for name in VERDICTS.values()}
    if None in known.values():
        seen = Counter(map(verdict, rows))
        known = {name: float(seen[name]) for name in VERDICTS.values()}
    total = sum(count or 0 for count in known.values())
    return (
        [(name, figure(count), percent((count or 0) / total)) for name, count in known.items()]
        if total
        else []
    )


def worker_memory(results: Mapping[str, Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return stage -> peak memory of each worker in GiB, of the stages whose result.json has it."""
    memory = {}
    for stage, result in results.items():
        peaks = result.get("peak_memory_gib")
        known = [number(peak) for peak in peaks] if isinstance(peaks, list) else []
        if known and None not in known:
            memory[stage] = [peak for peak in known if peak is not None][:MAX_INPUTS]
    return memory


def data_card(result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return one row per file of tokenize's result.json, in the order of the page's columns."""
    files = [(str(name), mapping(card)) for name, card in mapping(result.get("files")).items()]
    return [
        (shorten(name, MAX_TEXT), *(_count(card.get(key)) for key in COUNTS), _lengths(card))
        for name, card in files[:MAX_CARDS]
    ]


def _count(value: object) -> str:
    """Return a number, or the numbers of rows by reason or column."""
    if not isinstance(value, dict):
        return figure(value)
    text = ", ".join(f"{figure(rows)}: {words(str(reason))}" for reason, rows in value.items())
    return shorten(text, MAX_TEXT) or "0"


def _lengths(card: Mapping[str, Any]) -> str:
    """Return the median, 95th percentile and maximum of the tokens in each column."""
    columns = []
    for column, values in mapping(card.get("lengths")).items():
        percentiles = mapping(mapping(values).get("percentiles"))
        columns.append(f"{column} {' / '.join(figure(percentiles.get(name)) for name in PERCENTILES)}")
    return shorten(", ".join(columns), MAX_TEXT)


@dataclass(frozen=True)
class Span:
    """Time of one stage."""

    stage: str
    started: float
    ended: float
    reused: bool
    """Finished before the run began."""
    peak_memory_gib: float | None


def spans(manifests: Mapping[str, Mapping[str, Any]], began: float | None) -> list[Span]:
    """Return the stages whose manifest has a start and an end, in the order in which they started.

    Stages that ended before `began`, the Unix time of the run's start, were reused. None: none was.
    """
    result = []
    for stage, manifest in manifests.items():
        start, end = number(manifest.get("started")), number(manifest.get("ended"))
        if start is not None and end is not None and end >= start:
            reused = began is not None and end < began
            result.append(Span(stage, start, end, reused, number(manifest.get("peak_memory_gib"))))
    return sorted(result, key=lambda span: span.started)


def worked_s(stages: Sequence[Span]) -> float | None:
    """Return the seconds in which at least one stage ran that was not reused; waiting does not count."""
    ran = [(span.started, span.ended) for span in stages if not span.reused]
    return covered_s(ran) if ran else None


def covered_s(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of intervals (start, end)."""
    total, reached = 0.0, -math.inf
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def step_time(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, float]]:
    """Return the parts of a step's time: (part, mean seconds, percent of the step)."""
    means = {}
    for key in (*STEP_PARTS, "step_s"):
        values = [value for _, value in points(metrics, key)]
        means[key] = sum(values) / len(values) if values else 0.0
    parts = [(translate(name), means[key]) for key, name in STEP_PARTS.items()]
    parts.append(
        (translate("Everything else"), max(0.0, means["step_s"] - sum(seconds for _, seconds in parts)))
    )
    total = sum(seconds for _, seconds in parts)
    return [(name, seconds, 100 * seconds / total) for name, seconds in parts if seconds > 0]


def environment(run: Artifacts) -> list[tuple[str, str]]:
    """Return commit, host, seed and versions; where stages differ, each value with its stages."""
    values: dict[str, dict[str, list[str]]] = {}
    for stage, manifest in run.manifests.items():
        facts = {translate("commit"): manifest.get("git_commit"), translate("host"): manifest.get("host")}
        facts |= {translate("seed"): manifest.get("seed"), **mapping(manifest.get("versions"))}
        for key, value in facts.items():
            if value is not None:
                values.setdefault(str(key), {}).setdefault(plain(value), []).append(stage)
    rows = []
    for key, stages in values.items():
        several = [f"{value} ({', '.join(names)})" for value, names in stages.items()]
        rows.append((key, "; ".join(several) if len(stages) > 1 else next(iter(stages))))
    return rows[:MAX_ROWS]


def artifacts(run: Artifacts) -> list[dict[str, Any]]:
    """Return fingerprint, inputs, size and files (at most 24) of each stage's artifact.

    An input is named by the stage that made it; by its role (such as weights) if that is not part of the run.
    """
    stages = {str(manifest.get("fingerprint")): stage for stage, manifest in run.manifests.items()}
    result = []
    for stage, manifest in run.manifests.items():
        entries = sorted(mapping(manifest.get("files")).items())
        files = [(path, number(mapping(entry).get("size"))) for path, entry in entries]
        result.append({
            "stage": stage,
            "fingerprint": str(manifest.get("fingerprint") or "")[:64],
            "inputs": _makers(manifest, stages),
            "count": len(files),
            "bytes": sum(size or 0 for _, size in files),
            "files": files[:MAX_FILES],
        })  # fmt: skip
    return result


def _makers(manifest: Mapping[str, Any], stages: Mapping[str, str]) -> list[str]:
    makers = {
        stages.get(str(made), str(role)): None for role, made in mapping(manifest.get("inputs")).items()
    }
    return list(makers)[:MAX_INPUTS]
