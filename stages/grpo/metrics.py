"""JSON lines that can be continued after a kill, and the same numbers for TensorBoard."""

from __future__ import annotations

import json
import resource
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


class StepLog:
    """A JSONL file whose rows carry `step`; rows come in the order of steps."""

    def __init__(self, path: Path, last_step: int) -> None:
        """Open the file, dropping what a killed attempt wrote after `last_step`.

        Args:
            path: appended to; made if missing.
            last_step: the run continues after this step; 0 begins anew.
        """
        self.rows = [row for row in read_rows(path) if row["step"] <= last_step]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in self.rows), encoding="utf-8")
        self.path = path

    def append(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        with self.path.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a JSONL file; none if it does not exist. A last line cut off by a kill is left out."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")
    return [json.loads(line) for line in lines[:-1] if line]  # what follows the last line break is incomplete


class TensorBoard:
    """Event files of the numbers in metrics rows."""

    def __init__(self, directory: Path, rows: Iterable[Mapping[str, Any]]) -> None:
        """Begin with the rows of earlier attempts."""
        from tensorboardX import SummaryWriter

        self.writer = SummaryWriter(str(directory))
        for row in rows:
            self.add(row)

    def add(self, row: Mapping[str, Any]) -> None:
        """Add one step."""
        for name, value in row.items():
            if name not in ("step", "time_s"):
                self.writer.add_scalar(name, value, row["step"], walltime=row["time_s"])

    def close(self) -> None:
        """Write out what is buffered."""
        self.writer.close()


def peak_memory_gib() -> float:
    """Most memory that this process has held so far, GiB (Linux reports KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
