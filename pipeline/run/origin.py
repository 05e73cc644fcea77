"""Facts about a run that its report shows besides its artifacts."""

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from pipeline.store.history import Record
from pipeline.store.logs import find_log


def origin(root: Path, record: Record, page: Path) -> dict[str, Any]:
    """Return the fields of the report's Origin.

    Args:
        root: the store.
        record: the run.
        page: directory of the page, to which links are relative.
    """
    files = {stage: find_log(root, artifact) for stage, artifact in record.artifacts.items()}
    logs = {
        stage: quote(os.path.relpath(log, page), safe="/+") for stage, log in files.items() if log is not None
    }
    return {"run": record.id, "name": record.name or "", "command": record.command, "logs": logs}
