"""Rules for keys of `train` that only engine=local implements; external programs would ignore them."""

from collections.abc import Mapping
from typing import Any

from stages.base.rules import Rules, be

PLAIN: Mapping[str, tuple[object, str]] = {
    "loss_type": ("grpo", "averages within each completion, then over completions"),
    "scale_advantages": (True, "always divides by the group's standard deviation"),
    "importance_sampling_level": ("token", "weighs token by token"),
    "use_bias_correction_kl": (False, "does not correct its KL term"),
    "mask_truncated_completions": (False, "trains on completions that were cut off, too"),
    "resample_rounds": (0, "samples each step once"),
    "validate_every": (0, "has no check on held-out prompts; evaluate has"),
    "lora_rank": (0, "trains all weights"),
    "max_kl": (None, "does not stop by KL"),
    "resume_from": (None, "cannot resume from another run's checkpoint"),
    "loggers": ((), "gives its numbers to TensorBoard alone"),
}
"""Key -> the only value that programs implement, and what they do."""
LOSS = "importance_sampling_level use_bias_correction_kl mask_truncated_completions"
"""Keys of upstream's loss function."""


def plain(rules: Rules[Any], engine: str, sources: Mapping[str, str]) -> None:
    """Add a rule for each key; `sources` maps files of the program to the keys that they decide."""
    for source, keys in sources.items():
        for key in keys.split():
            required_value, why = PLAIN[key]
            rules.must(f"train.{key}", be(required_value, f"{engine} {why}"), source)
