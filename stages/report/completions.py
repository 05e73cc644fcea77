"""The completions of a run as the page's browser shows them: of steps while training, and before and after.

completions.jsonl of a long run holds gigabytes. The page carries steps at equal distances, the first and the
last among them, as many as fit into its share of a page of 2 MB, and says how many it left out.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.report.charts import evenly
from stages.report.details import judged, verdict
from stages.report.text import number, shorten
from stages.rewards.number import answer_span

MAX_STEPS = 200
STEPS_BYTES, HELD_OUT_BYTES = 800_000, 300_000
"""Size of the completions of all steps in a page, and of those before and after, as JSON."""
MAX_PARTS = 8
"""Reward functions shown of a completion."""
PROMPT_LIMIT = 1000
_STEP = re.compile(rb'\s*\{"step": ?([0-9]{1,15})[,}]')


def of_steps(lines: Iterable[bytes], text_limit: int) -> dict[str, Any]:
    """Return the chosen steps with their groups, and how many steps were logged.

    Args:
        lines: rows of completions.jsonl.
        text_limit: characters shown of one completion.
    """
    positions: dict[int, list[bytes]] = {}
    for line in lines:
        step = _step_of(line)
        if step is not None:
            positions.setdefault(step, []).append(line)
    return _chosen(positions, text_limit)


def read_steps(path: Path, text_limit: int) -> dict[str, Any]:
    """Return the same from a file, of which only the chosen steps are kept in memory.

    Raises:
        OSError: the file cannot be read.
    """
    steps: dict[int, None] = {}
    with path.open("rb") as file:
        for line in file:
            if (step := _step_of(line)) is not None:
                steps[step] = None
        wanted = set(evenly(sorted(steps), MAX_STEPS))
        file.seek(0)
        rows: dict[int, list[bytes]] = {step: [] for step in sorted(wanted)}
        for line in file:
            if (step := _step_of(line)) in rows:
                rows[step].append(line)
    return {**_chosen(rows, text_limit), "logged": len(steps)}


def _step_of(line: bytes) -> int | None:
    """Return the step of a row without reading all of it, if it begins as grpoflow's own rows do."""
    if found := _STEP.match(line):
        return int(found[1])
    row = _object(line)
    step = number(row.get("step")) if row is not None else None
    return None if step is None else int(step)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _chosen(rows: Mapping[int, Sequence[bytes]], text_limit: int) -> dict[str, Any]:
    """Return the steps that fit into STEPS_BYTES, and of a large step its first groups."""
    logged = len(rows)
    made: dict[int, tuple[dict[str, Any], int]] = {}

    def step(name: int) -> tuple[dict[str, Any], int]:
        if name not in made:
            parsed = [row for line in rows[name] if (row := _object(line)) is not None]
            made[name] = _step(name, parsed, text_limit)
        return made[name]

    names = evenly(sorted(rows), MAX_STEPS)
    while len(names) > 2 and sum(step(name)[1] for name in names) > STEPS_BYTES:
        total = sum(step(name)[1] for name in names)
        names = evenly(names, max(2, min(len(names) - 1, int(len(names) * STEPS_BYTES / total))))
    return {"steps": [step(name)[0] for name in names], "logged": logged}


def _step(name: int, rows: Sequence[Mapping[str, Any]], text_limit: int) -> tuple[dict[str, Any], int]:
    """Return one step and its size; groups beyond a quarter of STEPS_BYTES are left out and counted."""
    groups: list[dict[str, Any]] = []
    size, left_out = 0, 0
    for group in _groups(rows):
        shown = _group(group, text_limit)
        length = len(json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace"))
        if groups and size + length > STEPS_BYTES // 4:
            left_out += len(group)
            continue
        groups.append(shown)
        size += length
    return {"step": name, "groups": groups, "left_out": left_out}, size


def _groups(rows: Sequence[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Yield the rows of each prompt, in the order of their first completion."""
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((str(row.get("prompt", "")), str(row.get("solution", ""))), []).append(row)
    yield from groups.values()


def _group(rows: Sequence[Mapping[str, Any]], text_limit: int) -> dict[str, Any]:
    prompt, solution = (_text(rows[0].get(key), PROMPT_LIMIT) for key in ("prompt", "solution"))
    return {"prompt": prompt, "solution": solution, "rows": [_completion(row, text_limit) for row in rows]}


def _completion(row: Mapping[str, Any], text_limit: int) -> dict[str, Any]:
    """Return what is shown of a completion; what was not recorded is left out."""
    shown = _answer(row.get("completion"), text_limit)
    parts = _parts(row.get("parts"))
    facts = {
        "reward": number(row.get("reward")),
        "advantage": number(row.get("advantage")),
        "length": number(row.get("length")),
        "right": judged(row.get("parts")),
        "cut": row.get("cut") if isinstance(row.get("cut"), bool) else None,
    }
    shown.update((key, value) for key, value in facts.items() if value is not None)
    return {**shown, "parts": parts} if parts else shown


def held_out(rows: Sequence[Mapping[str, Any]], text_limit: int) -> list[dict[str, Any]]:
    """Return the rows of samples.jsonl that fit into HELD_OUT_BYTES, with their numbers and in their order.

    Where not all fit, those that training fixed or broke come first: they are what a reader looks for.
    """
    result: list[dict[str, Any]] = []
    size = 0
    verdicts = [verdict(row) for row in rows]
    for i in sorted(range(len(rows)), key=lambda i: verdicts[i] not in ("fixed", "broken")):
        row = rows[i]
        shown: dict[str, Any] = {
            "prompt": _text(row.get("prompt"), PROMPT_LIMIT),
            "solution": _text(row.get("solution"), PROMPT_LIMIT),
            "verdict": verdicts[i],
            "number": i + 1,
        }
        for side in ("before", "after"):
            shown[side] = _answer(row.get(side), text_limit)
            if (reward := number(row.get(f"{side}_reward"))) is not None:
                shown[side]["reward"] = reward
            if parts := _parts(row.get(f"{side}_parts")):
                shown[side]["parts"] = parts
            solved, samples = (number(row.get(key)) for key in (f"{side}_samples_right", "samples"))
            if solved is not None and samples is not None:
                shown[side]["samples"] = [solved, samples]
        size += len(json.dumps(shown, ensure_ascii=False).encode("utf-8", "replace"))
        if result and size > HELD_OUT_BYTES:
            break
        result.append(shown)
    return sorted(result, key=lambda shown: int(shown["number"]))


def _answer(value: object, limit: int) -> dict[str, Any]:
    """Return a completion with the place of its final answer, as the reward `number` reads it."""
    text = _text(value, limit)
    span = answer_span(text)
    return {"text": text, "answer": list(span)} if span else {"text": text}


def _text(value: object, limit: int) -> str:
    return "" if value is None else shorten(str(value), limit)


def _parts(value: object) -> dict[str, float | None]:
    values = list(value.items())[:MAX_PARTS] if isinstance(value, dict) else []
    return {shorten(str(name), 60): number(part) for name, part in values}
