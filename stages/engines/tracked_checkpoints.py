"""Checkpoints of programs that save a directory per step, and a tracker file with the last step's number.

The tracker is written after all files of the step. Megatron and verl use the same name for it.
Source: NVIDIA/Megatron-LM core_v0.12.1, megatron/training/checkpointing.py; verl 0.9.1,
trainer/ppo/v1/trainer_base.py (_save_checkpoint, _load_checkpoint).
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

TRACKER = "latest_checkpointed_iteration.txt"


@dataclass(frozen=True)
class TrackedCheckpoints:
    """The checkpoints of one run."""

    root: Path
    """Directory of tracker and checkpoints; it need not exist."""
    pattern: str
    """Name of a step's directory, with a replacement field for the step."""
    defect: Callable[[Path], str | None]
    """Returns what is missing or truncated in a step's directory; None if it is complete."""

    def directory(self, step: int) -> Path:
        """Return the directory of one step."""
        return self.root / self.pattern.format(step)

    @property
    def tracker(self) -> Path:
        """File with the number of the last complete step."""
        return self.root / TRACKER

    def tracked(self) -> int | None:
        """Return the step that the tracker names; None without a readable tracker."""
        try:
            text = self.tracker.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return int(text) if text.isdecimal() else None

    def steps(self) -> list[int]:
        """Return the steps that have a directory, in order."""
        prefix, _, _ = self.pattern.partition("{")
        numbers = (path.name.removeprefix(prefix) for path in self.root.glob(f"{prefix}*"))
        return sorted(
            int(number) for number in numbers if number.isdecimal() and self.directory(int(number)).is_dir()
        )

    def prepare_resume(self, last: int) -> int | None:
        """Return the step to resume from, at most `last`; remove later ones and correct the tracker.

        It is the tracker's step, unless a kill left the tracker or that checkpoint incomplete; then the
        newest complete one. None if the run must start from the beginning; nothing is left then.
        """
        steps, tracked = self.steps(), self.tracked()
        complete = [step for step in steps if step <= last and self.defect(self.directory(step)) is None]
        if not complete:
            shutil.rmtree(self.root, ignore_errors=True)
            return None
        newest = tracked if tracked is not None and tracked in complete else complete[-1]
        for step in steps:
            if step > newest:
                shutil.rmtree(self.directory(step))
        if tracked != newest:
            temporary = self.root / f"{TRACKER}.new"
            temporary.write_text(str(newest), encoding="utf-8")
            temporary.replace(self.tracker)
        return newest

    def prune(self, keep: int, best: int | None = None) -> None:
        """Remove the oldest checkpoints beyond `keep`, except for that of step `best`.

        Those after the tracker's step, which may be incomplete, are left alone. What cannot be removed now,
        for example because a file is open on another node, is tried again next time.
        """
        last = self.tracked()
        finished = [step for step in self.steps() if last is not None and step <= last]
        for step in finished[:-keep]:
            if step != best:
                shutil.rmtree(self.directory(step), ignore_errors=True)
