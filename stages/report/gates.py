"""Gates: limits that the results of a run must keep before its model is exported.

They are decided when evaluate has finished and change no artifact but the report, which shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge, Le

from stages.base.bounds import PositiveFloat, Share
from stages.report.text import number


@dataclass(frozen=True)
class GatesConfig:
    """Section `gates`: limits for the export of a model. A run that breaks one ends with exit code 1.

    evaluate's artifact stays, and the report shows the gates; export is not built. A changed limit only
    rebuilds the report.
    """

    min_accuracy: Share | None
    """Least greedy accuracy after GRPO on the held-out prompts; null: no gate."""
    max_kl: PositiveFloat | None
    """Greatest KL to the reference, nats per token, in the last step of grpo, or in the step whose weights
    train.keep_best chooses; null: no gate. It differs from train.max_kl, which stops a diverging training."""
    min_gain: Annotated[float, Ge(-1), Le(1)] | None
    """Least difference of the greedy accuracies after and before GRPO; null: no gate."""

    @property
    def limits(self) -> dict[str, float]:
        """The gates that are set: key -> limit."""
        return {key: limit for key, limit in vars(self).items() if limit is not None}


@dataclass(frozen=True)
class Verdict:
    """Decision about one gate."""

    key: str
    """For example gates.min_gain."""
    limit: float
    value: float | None
    """What was measured; None if the artifacts do not contain it, which fails the gate."""
    measure: str
    """What it is, in words."""
    passed: bool

    def __str__(self) -> str:
        found = "was not measured" if self.value is None else f"is {self.value:.4g}"
        bound = "at most" if self.key.startswith("gates.max_") else "at least"
        return f"{self.key}={self.limit:g}: the {self.measure} {found}, must be {bound} {self.limit:g}"


def judge(
    gates: GatesConfig,
    evaluation: Mapping[str, Any],
    training: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
) -> list[Verdict]:
    """Decide about the gates that are set.

    Args:
        gates: section `gates`.
        evaluation: result.json of evaluate.
        training: result.json of grpo.
        metrics: rows of metrics.jsonl of grpo, in the order of steps.
    """
    measured = {
        "min_accuracy": ("greedy accuracy after GRPO", number(evaluation.get("accuracy_grpo"))),
        "max_kl": ("KL to the reference", _last_kl(training, metrics)),
        "min_gain": ("gain in greedy accuracy", number(evaluation.get("gain"))),
    }
    verdicts = []
    for key, limit in gates.limits.items():
        measure, value = measured[key]
        excess = None if value is None else value - limit
        passed = excess is not None and (excess <= 0 if key.startswith("max_") else excess >= 0)
        verdicts.append(Verdict(f"gates.{key}", limit, value, measure, passed))
    return verdicts


def _last_kl(training: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the KL of the exported weights' step, or of the last step before it that has one."""
    chosen = number(training.get("weights_of_step"))
    values = [
        value
        for row in metrics
        if (value := number(row.get("kl"))) is not None
        and (chosen is None or (number(row.get("step")) or 0.0) <= chosen)
    ]
    return values[-1] if values else None
