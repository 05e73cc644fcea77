"""Which trainer runs grpo, and what each needs to be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class LocalEngine:
    """The embedded MindSpore trainer."""

    name: Literal["local"]
    """local: the embedded MindSpore trainer."""
    device_target: Literal["CPU", "Ascend", "GPU"]
    """What sft, grpo and evaluate compute on, as MindSpore's set_device names it; never run on any but CPU.
    Each of several workers takes the device that MindSpore's msrun gives it."""
