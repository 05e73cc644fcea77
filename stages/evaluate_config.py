"""Configuration of the evaluate stage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from stages.errors import Problem
from stages.grpo.config import Positive


@dataclass(frozen=True)
class EvaluateConfig:
    """Accuracy on held-out prompts, before and after grpo."""

    num_prompts: Positive | None
    """Held-out prompts for greedy accuracy, from the first; null: all."""
    sample_prompts: Annotated[int, Ge(0)]
    """Held-out prompts for pass@k and mean@k, from the first; 0: skip both."""
    k: Annotated[int, Ge(2)]
    """Attempts that pass@k allows."""
    num_samples: Annotated[int, Ge(2)]
    """Completions sampled per prompt, at least k: pass@k is estimated from them (arXiv:2107.03374, eq. 1)."""
    batch_prompts: Positive
    """Prompts decoded at once."""
    logged_samples: Annotated[int, Ge(0)]
    """Rows of samples.jsonl."""


def check_evaluate(config: EvaluateConfig, path: str = "evaluate") -> list[Problem]:
    """Every cross-field rule that `config` breaks."""
    if not config.sample_prompts or config.k <= config.num_samples:
        return []
    rule = f"at most {path}.num_samples={config.num_samples}, for pass@k (arXiv:2107.03374, eq. 1)"
    return [Problem(f"{path}.k", config.k, rule, f"use at most {config.num_samples}, or draw more samples")]
