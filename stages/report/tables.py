"""Rows for the page's tables: config, training figures, samples, environment, artifacts."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from stages.report.artifacts import Run, mapping
from stages.report.curves import points
from stages.report.text import figure, number, percent, shorten, words

MAX_ROWS, MAX_VALUE = 400, 300
MAX_FILES = 24
SHARES = (
    "accuracy", "clip_fraction", "completion_cut_share", "zero_variance_share", "worked_share",
    "accuracy_check",
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """One held-out prompt with the completions of both models."""

    prompt: str
    solution: str
    answers: tuple[tuple[str, str, str, tuple[tuple[str, str], ...]], ...]
    """(heading, completion, reward, reward parts) per model."""
    verdict: str


def flat(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a nested mapping as (dotted key, value) rows, at most 400."""
    return [(name, plain(value)) for name, value in leaves(values, ".")]


def leaves(values: Mapping[str, Any], between: str) -> Iterator[tuple[str, object]]:
    """Yield the first 400 values of a nested mapping, each with its joined keys."""

    def walk(part: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, object]]:
        for key, value in part.items():
            if isinstance(value, dict) and value:
                yield from walk(value, f"{prefix}{key}{between}")
            else:
                yield f"{prefix}{key}", value

    return islice(walk(values, ""), MAX_ROWS)


def config(values: Mapping[str, Any]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Return a config section as (column names, rows); groups with the same keys (roles) become columns.

    Where there are columns, a row of one value belongs to all of them.
    """
    groups = {key: value for key, value in values.items() if isinstance(value, dict) and value}
    alike = len(groups) > 1 and len({frozenset(group) for group in groups.values()}) == 1
    if not alike:
        return [], [*flat(values)]
    rows: list[tuple[str, ...]] = []
    for key in next(iter(groups.values())):
        rows.append((str(key), *(plain(group[key]) for group in groups.values())))
    single = flat({key: value for key, value in values.items() if key not in groups})
    return [str(key) for key in groups], [*single, *rows][:MAX_ROWS]


def plain(value: object) -> str:
    """Return a config value as YAML would show it, at most 300 characters."""
    if isinstance(value, str):
        return shorten(value, MAX_VALUE)
    return shorten(json.dumps(value, ensure_ascii=False, default=str), MAX_VALUE)


def differing(run: Run, defaults: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """(key, value, default) of every value that a stage read and that is not the default's; all as text."""
    if not defaults:
        return []
    read: dict[str, Any] = {}
    for manifest in run.manifests.values():
        for name, value in mapping(manifest.get("config")).items():
            read[name] = {**mapping(value), **mapping(read.get(name))} if isinstance(value, dict) else value
    values, usual = flat(read), dict(flat({name: value for name, value in defaults.items() if name in read}))
    rows = [(key, text, usual.get(key, "–")) for key, text in values if text != usual.get(key)]
    return rows[:MAX_ROWS]


def training(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """Per metric: name, first, last, mean of the last tenth, lowest, highest."""
    names = sorted({key for row in metrics for key in row if isinstance(key, str)} - {"step", "time_s"})
    rows = []
    for name in names[:60]:
        values = [value for _, value in points(metrics, name)]
        if values:
            show = percent if name in SHARES else figure
            tail = values[-max(1, len(values) // 10) :]
            shown = (values[0], values[-1], sum(tail) / len(tail), min(values), max(values))
            rows.append((name, *(show(value) for value in shown)))
    return rows


def step_time(metrics: Sequence[Mapping[str, Any]]) -> list[tuple[int, str, float, float]]:
    """Return the parts of a step's time: (colour, part, mean seconds, percent of the step)."""
    means = {}
    for key in ("rollout_s", "reference_s", "train_s", "step_s"):
        values = [value for _, value in points(metrics, key)]
        means[key] = sum(values) / len(values) if values else 0.0
    parts = [
        ("Rollout", means["rollout_s"]),
        ("Reference", means["reference_s"]),
        ("Update", means["train_s"]),
    ]
    remaining = means["step_s"] - sum(seconds for _, seconds in parts)
    parts.append(("Everything else", max(0.0, remaining)))
    total = sum(seconds for _, seconds in parts)
    if total <= 0:
        return []
    return [
        (i + 1, name, seconds, 100 * seconds / total)
        for i, (name, seconds) in enumerate(parts)
        if seconds > 0
    ]


def samples(rows: Sequence[Mapping[str, Any]], count: int, limit: int) -> list[Sample]:
    """Return the first `count` rows of samples.jsonl in the file's order, without selection."""
    return [_sample(row, limit) for row in rows[:count]]


def _sample(row: Mapping[str, Any], limit: int) -> Sample:
    answers = []
    for key in ("before", "after"):
        parts = mapping(row.get(f"{key}_parts"))
        shown = tuple((words(str(name)), figure(value)) for name, value in list(parts.items())[:8])
        answers.append(
            (key.capitalize(), _text(row.get(key), limit), figure(row.get(f"{key}_reward")), shown)
        )
    return Sample(
        _text(row.get("prompt"), limit), _text(row.get("solution"), limit), tuple(answers), verdict(row)
    )


def _text(value: object, limit: int) -> str:
    return shorten(value if isinstance(value, str) else "" if value is None else str(value), limit)


def verdict(row: Mapping[str, Any]) -> str:
    """better, worse or same, by the rewards; empty where one is missing."""
    before, after = number(row.get("before_reward")), number(row.get("after_reward"))
    if before is None or after is None:
        return ""
    return "same" if abs(after - before) < 1e-9 else "better" if after > before else "worse"


def drawn(rows: Sequence[Mapping[str, Any]], count: int, limit: int) -> list[tuple[str, str, str, str]]:
    """Completions of the last training step: (prompt, completion, reward, parts in one line)."""
    steps = [step for row in rows if (step := number(row.get("step"))) is not None]
    last = [row for row in rows if steps and number(row.get("step")) == max(steps)]
    result = []
    for row in last[:count]:
        parts = ", ".join(
            f"{words(str(k))} {figure(v)}" for k, v in list(mapping(row.get("parts")).items())[:8]
        )
        texts = _text(row.get("prompt"), limit), _text(row.get("completion"), limit)
        result.append((*texts, figure(row.get("reward")), parts))
    return result


def artifacts(run: Run) -> list[dict[str, Any]]:
    """Per stage: fingerprint, number and bytes of its files, and the files themselves (at most 24)."""
    result = []
    for stage, manifest in run.manifests.items():
        files = mapping(manifest.get("files"))
        entries = [(path, number(mapping(entry).get("size"))) for path, entry in sorted(files.items())]
        result.append({
            "stage": stage, "fingerprint": str(manifest.get("fingerprint") or "")[:64], "count": len(entries),
            "bytes": sum(size or 0 for _, size in entries), "files": entries[:MAX_FILES],
            "inputs": [str(name) for name in mapping(manifest.get("inputs"))][:20],
        })  # fmt: skip
    return result


def rank_bytes(run: Run, role: str) -> dict[int, int]:
    """Rank -> bytes of its weight files, from the latest stage that wrote the role's shards."""
    for stage in ("grpo", "sft", "split"):
        sizes: dict[int, int] = {}
        for path, entry in mapping(run.manifests.get(stage, {}).get("files")).items():
            match = re.fullmatch(rf"{role}/rank_(\d{{1,4}})/[^/]+\.(safetensors|ckpt)", Path(path).as_posix())
            size = number(mapping(entry).get("size"))
            if match and size is not None:
                sizes[int(match[1])] = sizes.get(int(match[1]), 0) + int(size)
        if sizes:
            return sizes
    return {}


def rank_peaks(run: Run) -> dict[int, float]:
    """Rank -> most memory that it held while training, GiB; {} where that was not recorded."""
    values = run.result("grpo").get("peak_memory_gib")
    numbered = enumerate(values if isinstance(values, list) else [])
    return {rank: peak for rank, value in numbered if (peak := number(value)) is not None}


def environment(run: Run) -> list[tuple[str, str]]:
    """Versions, host and commit. Where stages differ, every value with the stages that had it."""
    seen: dict[str, dict[str, list[str]]] = {}
    for stage, manifest in run.manifests.items():
        facts = {
            "commit": manifest.get("git_commit"),
            "host": manifest.get("host"),
            "seed": manifest.get("seed"),
        }
        facts.update({str(key): value for key, value in mapping(manifest.get("versions")).items()})
        for key, value in facts.items():
            if value is not None:
                seen.setdefault(key, {}).setdefault(plain(value), []).append(stage)
    rows = []
    for key, values in seen.items():
        if len(values) == 1:
            rows.append((key, next(iter(values))))
        else:
            rows.append(
                (key, "; ".join(f"{value} ({', '.join(stages)})" for value, stages in values.items()))
            )
    return rows[:MAX_ROWS]
