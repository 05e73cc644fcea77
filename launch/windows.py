"""Versions that are known to work together, engine by engine. Data only; launch.doctor compares with it."""

from __future__ import annotations

Window = tuple[str, str, str]
"""Distribution, versions that work (empty: any), why."""

_NUMPY: Window = ("numpy", "<2", "with numpy 2 single MindSpore operators fail with SystemError")
_SAFETENSORS: Window = (
    "safetensors", "<0.8", "0.8.0 makes MindSpore write non-contiguous slices wrongly, silently",
)  # fmt: skip

MINDRLHF: tuple[Window, ...] = (
    ("mindspore", "==2.7.0", "the version that mindrlhf's users pin"),
    _NUMPY,
    _SAFETENSORS,
    ("mindstudio-probe", "", "msprobe: without it mindformers ends with: save not found"),
)
VLLM: tuple[Window, ...] = (
    ("vllm", ">=0.8.4.dev0,<0.9", "the version that vllm-mindspore 0.3.0 is made for"),
    ("vllm-mindspore", "==0.3.0", "the version that mindrlhf's users pin"),
    ("urllib3", "<2", "2.x has no DEFAULT_CIPHERS: the import of vLLM fails"),
)
MINDFORMERS: tuple[Window, ...] = (
    ("mindspore", "==2.7.0", "mindformers 1.6.0 wants ~=2.7.0rc1"),
    _NUMPY,
    _SAFETENSORS,
)
ONE_STAGE: tuple[Window, ...] = (
    ("mindspore", "", "it trains with it"),
    _NUMPY,
    _SAFETENSORS,
)
MINDSPEED_RL: tuple[Window, ...] = (
    ("mindspore", "", "its back end, through MSAdapter"),
    _NUMPY,
    ("ray", "", "it starts its workers"),
    ("hydra-core", ">=1.3,<1.4", "its requirements.txt pins 1.3.2"),
    ("antlr4-python3-runtime", "==4.9.*", "the version that Hydra 1.3's grammar was made with"),
    ("transformers", "", "its tokenizer"),
    ("tensordict", "", "its batches"),
)
PYTHONS = ">=3.10,<3.12"
"""grpoflow needs 3.10; mindspore 2.7.0 has wheels up to 3.11."""
CANN = ">=8.1,<8.3"
CANN_WHY = "mindrlhf's README names 8.1; MindSpore 2.7.0 was released with 8.2.RC1"
DRIVER = ">=24.1"
DRIVER_WHY = "CANN 8.1 and 8.2 came out with drivers 24.1 and later"
