"""Runs, one JSON line per event in STORE/runs.jsonl: append-only, so that a crash loses nothing."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def new_run_id() -> str:
    """YYYYMMDD-HHMMSS-xxxx: sorts by time, unique enough for several people in one second."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:4]}"


def record(store: Path, run: str, event: str, **values: Any) -> None:
    """Append one event. One write of one line: appends of several processes do not mix."""
    line = json.dumps({"run": run, "event": event, "time_s": time.time(), **values}, sort_keys=True)
    descriptor = os.open(store / "runs.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o664)
    try:
        os.write(descriptor, f"{line}\n".encode())
    finally:
        os.close(descriptor)


def runs(store: Path) -> dict[str, list[dict[str, Any]]]:
    """Events by run, oldest run first; lines that a crash cut short are passed over."""
    found: dict[str, list[dict[str, Any]]] = {}
    try:
        lines: Sequence[str] = (
            (store / "runs.jsonl").read_text(encoding="utf-8", errors="replace").splitlines()
        )
    except FileNotFoundError:
        lines = []
    for line in lines:
        try:
            event = json.loads(line)
            found.setdefault(event["run"], []).append(event)
        except (ValueError, KeyError, TypeError):
            continue
    return found
