"""File formats that weights can be written in."""

from typing import Literal

Format = Literal["safetensors", "ckpt"]
"""safetensors, or MindSpore's older .ckpt for tools that read nothing else."""
