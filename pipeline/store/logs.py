"""Log files of the attempts at an artifact, in STORE/.logs."""

from pathlib import Path

from pipeline.store.attempt import slot_directories


def find_log(root: Path, artifact: str) -> Path | None:
    """Return worker 0's log of the latest attempt at STAGE/DIGITS, or the stage's if that is empty."""
    directory = newest_attempt(root, artifact)
    if directory is None:
        return None
    plain = directory / "stage.log"
    file = worker_logs(directory).get(0, plain)
    if file.is_file() and file.stat().st_size:
        return file
    return plain if plain.is_file() else None


def newest_attempt(root: Path, artifact: str) -> Path | None:
    """Return the logs of the attempt at STAGE/DIGITS that wrote last."""
    attempts = slot_directories(root / ".logs", artifact)
    return max((path for path in attempts if path.is_dir()), key=last_written, default=None)


def worker_logs(directory: Path) -> dict[int, Path]:
    """Return the newest log of each worker, by its number."""
    logs = {}
    files = (file for file in directory.rglob("worker_*.log") if file.stem[7:].isdecimal() and file.is_file())
    for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
        logs[int(file.stem[7:])] = file
    return logs


def last_written(directory: Path) -> int:
    """Return the time of the last change of a log, in nanoseconds; 0 without logs."""
    return max((file.stat().st_mtime_ns for file in directory.rglob("*.log")), default=0)
