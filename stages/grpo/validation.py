"""Early stopping and the choice of the best step, by the accuracy on held-out prompts; divergence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from stages.base.errors import StageError


@dataclass
class Best:
    """The best check so far."""

    step: int | None = None
    """None before the first check."""
    accuracy: float = -1.0
    misses: int = 0
    """Checks since then."""

    def see(self, step: int, accuracy: float) -> bool:
        """Count a check; return True if it is better than all before."""
        if accuracy <= self.accuracy:
            self.misses += 1
            return False
        self.step, self.accuracy, self.misses = step, accuracy, 0
        return True

    def enough(self, patience: int | None) -> bool:
        """Return True if the last `patience` checks brought no improvement."""
        return patience is not None and self.misses >= patience


class DivergedError(StageError):
    """Training diverged."""

    def __init__(self, step: int, what: str, batch: Path, checkpoint: Path | None) -> None:
        self.step, self.batch, self.checkpoint = step, batch, checkpoint
        super().__init__(
            f"train: step {step}: {what}; its prompts, completions and rewards are in {batch}; last good "
            f"checkpoint: {checkpoint or 'none'}; lower train.learning_rate, or raise train.beta"
        )
