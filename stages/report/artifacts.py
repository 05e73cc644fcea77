"""Artifacts of a run as its report reads them; anything missing or broken becomes a note, not an error.

A report is read most carefully when a run went wrong, so nothing here raises for a bad input file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.catalog import STAGES
from stages.report.language import translate
from stages.report.text import number

Points = list[tuple[float, float]]
"""(step, value) of one metric."""
STAGE_ORDER = tuple(name for name in STAGES if name != "report")
READS = ("result.json", "metrics.jsonl", "completions.jsonl", "samples.jsonl")
"""Files of other stages that a report reads, besides their manifests."""
MAX_JSONL_BYTES = 32 * 2**20
"""Long runs write gigabytes of completions; the page needs their shape, not all of them."""


@dataclass(frozen=True)
class Artifacts:
    """All inputs of the report, with the notes on what could not be read."""

    directories: Mapping[str, Path]
    """Stage name -> artifact directory, in the order of the pipeline."""
    manifests: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Stage name -> its manifest; {} where it could not be read."""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, inputs: Mapping[str, Path]) -> Artifacts:
        """Read the manifest.json of each input."""
        known = [name for name in STAGE_ORDER if name in inputs]
        run = cls({name: inputs[name] for name in (*known, *sorted(set(inputs) - set(known)))})
        run.notes.extend(
            translate("{file}: not part of this run.", file=name)
            for name in STAGE_ORDER
            if name not in inputs
        )
        run.manifests.update((name, run._object(name, "manifest.json")) for name in run.directories)
        return run

    def result(self, stage: str) -> dict[str, Any]:
        """Return the stage's result.json; {} if there is none."""
        return self._object(stage, "result.json") if stage in self.directories else {}

    def rows(self, stage: str, name: str) -> list[dict[str, Any]]:
        """Return the objects of a JSON-lines file of the stage; [] if there is none.

        Only the end of files above 32 MiB is read.
        """
        content = self._read(stage, name, MAX_JSONL_BYTES) if stage in self.directories else None
        if content is None:
            return []
        lines = [line for line in content.split(b"\n") if line.strip()]
        rows = [row for line in lines if isinstance(row := _parsed(line), dict)]
        if len(rows) < len(lines):
            broken = f"{len(lines) - len(rows):,}"
            self.note("{file}: {count} broken line(s) left out.", stage, name, count=broken)
        elif not rows:
            self.note("{file}: empty.", stage, name)
        return rows

    def config(self) -> dict[str, Any]:
        """Return the configuration that the stages read, merged from their manifests."""
        merged: dict[str, Any] = {}
        for manifest in self.manifests.values():
            for name, value in mapping(manifest.get("config")).items():
                merged[name] = {**value, **mapping(merged.get(name))} if isinstance(value, dict) else value
        return merged

    def note(self, text: str, stage: str, name: str, **values: object) -> None:
        """Add a note about a file, in the language of the page."""
        self.notes.append(translate(text, file=f"{stage}/{name}", **values))

    def _object(self, stage: str, name: str) -> dict[str, Any]:
        content = self._read(stage, name)
        if content is None:
            return {}
        value = _parsed(content)
        if not isinstance(value, dict):
            self.note("{file}: contains no JSON object.", stage, name)
        return mapping(value)

    def _read(self, stage: str, name: str, most: int | None = None) -> bytes | None:
        """Return the last `most` bytes of a file, from the start of a line; None if it can't be read."""
        try:
            with (self.directories[stage] / name).open("rb") as file:
                size = file.seek(0, 2)
                file.seek(0)
                if most is not None and size > most:
                    file.seek(size - most)
                    file.readline()
                    self.note("{file}: only its last {size} MiB were read.", stage, name, size=most // 2**20)
                return file.read()
        except FileNotFoundError:
            self.note("{file}: not there.", stage, name)
        except OSError as error:
            self.note("{file}: could not be read ({error}).", stage, name, error=type(error).__name__)
        return None


def mapping(value: object) -> dict[str, Any]:
    """Return `value` if it is a JSON object, else {}."""
    return value if isinstance(value, dict) else {}


def points(rows: Sequence[Mapping[str, Any]], key: str) -> Points:
    """Return (step, value) of one metric by step; of a step repeated after a resume, the later one."""
    curve: dict[float, float] = {}
    for row in rows:
        step, value = number(row.get("step")), number(row.get(key))
        if step is not None and value is not None:
            curve[step] = value
    return sorted(curve.items())


def _parsed(content: bytes) -> object:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None
