"""Reads what the stages of a run left behind; whatever is missing or broken becomes a note, not an error.

A report is read most carefully when a run went wrong, so nothing here raises for a bad input file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stages.catalog import STAGES

STAGE_ORDER = tuple(name for name in STAGES if name != "report")
READS = ("result.json", "metrics.jsonl", "completions.jsonl", "samples.jsonl")
"""All the files of other stages that a report is made from, besides their manifests."""
# Long runs write gigabytes of completions; the page needs their shape, not all of them.
MAX_JSONL_BYTES = 32 * 2**20


@dataclass(frozen=True)
class Run:
    """All inputs of the report, with the notes on what could not be read."""

    directories: Mapping[str, Path]
    """Stage name -> artifact directory, in the order of the pipeline."""
    manifests: Mapping[str, Mapping[str, Any]]
    """Stage name -> its manifest; {} where it could not be read."""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, inputs: Mapping[str, Path]) -> Run:
        """Read every input's manifest.json."""
        known = [name for name in STAGE_ORDER if name in inputs]
        names = known + sorted(set(inputs) - set(known))
        notes = [f"{name}: not part of this run." for name in STAGE_ORDER if name not in inputs]
        manifests = {
            name: _json(inputs[name] / "manifest.json", f"{name}/manifest.json", notes) for name in names
        }
        return cls({name: inputs[name] for name in names}, manifests, notes)

    def result(self, stage: str) -> dict[str, Any]:
        """Return the stage's result.json; {} if there is none."""
        if stage not in self.directories:
            return {}
        return _json(self.directories[stage] / "result.json", f"{stage}/result.json", self.notes)

    def rows(self, stage: str, name: str) -> list[dict[str, Any]]:
        """Return the objects of a JSON-lines file of the stage; [] if there is none.

        Of files above 32 MiB only the end is read.
        """
        if stage not in self.directories:
            return []
        return _jsonl(self.directories[stage] / name, f"{stage}/{name}", self.notes)

    def section(self, name: str) -> dict[str, Any]:
        """Config section `name`, gathered from the manifests of the stages that read it."""
        merged: dict[str, Any] = {}
        for manifest in self.manifests.values():
            values = mapping(mapping(manifest.get("config")).get(name))
            merged.update({key: value for key, value in values.items() if key not in merged})
        return merged


def mapping(value: object) -> dict[str, Any]:
    """`value` where it is a JSON object, else {}."""
    return value if isinstance(value, dict) else {}


def _json(path: Path, name: str, notes: list[str]) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        notes.append(f"{name}: not there.")
        return {}
    except (OSError, ValueError, RecursionError) as error:
        notes.append(f"{name}: could not be read ({type(error).__name__}).")
        return {}
    if not isinstance(value, dict):
        notes.append(f"{name}: holds no JSON object.")
    return mapping(value)


def _jsonl(path: Path, name: str, notes: list[str]) -> list[dict[str, Any]]:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            if size > MAX_JSONL_BYTES:
                file.seek(size - MAX_JSONL_BYTES)
                file.readline()  # the line that the cut went through
                notes.append(f"{name}: only its last {MAX_JSONL_BYTES // 2**20} MiB were read.")
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        notes.append(f"{name}: not there.")
        return []
    except OSError as error:
        notes.append(f"{name}: could not be read ({type(error).__name__}).")
        return []
    rows, broken = [], 0
    for line in filter(bytes.strip, lines):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            rows.append(value)
        else:
            broken += 1
    if broken:
        notes.append(f"{name}: {broken:,} broken line(s) left out.")
    elif not rows:
        notes.append(f"{name}: empty.")
    return rows
