"""Versions that are known to work together, engine by engine. Data only; machine.checks compares with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

Window = tuple[str, str, str]
"""Distribution, versions that work (empty: any), why."""


@dataclass(frozen=True)
class Known:
    """What an engine was seen to work with."""

    packages: tuple[Window, ...]
    cann: Window
    driver: Window


_NUMPY: Window = ("numpy", "<2", "with numpy 2 single MindSpore operators fail with SystemError")
_SAFETENSORS: Window = (
    "safetensors", "<0.8", "0.8.0 makes MindSpore write non-contiguous slices wrongly, silently",
)  # fmt: skip
_CANN: Window = ("cann", ">=8.1,<8.3", "mindrlhf's README names 8.1; MindSpore 2.7.0 goes with 8.2.RC1")
_DRIVER: Window = ("driver", ">=24.1", "CANN 8.1 and 8.2 came out with drivers 24.1 and later")

PYTHONS = ">=3.10,<3.12"
"""grpoflow needs 3.10; mindspore 2.7.0 has wheels up to 3.11."""
MINDFORMERS_VERSIONS = ">=1.6.0,<1.7"
"""6a52b43, 051d65f and v1.6.0, which mindrlhf's users pin, all call themselves 1.6.0."""
ONE_STAGE_MINDFORMERS = ">=1.4.0b1"
"""What mindformers' dev branch called itself in February and March 2025."""

MINDRLHF = Known(
    (
        ("mindspore", "==2.7.0", "the version that mindrlhf's users pin"),
        _NUMPY,
        _SAFETENSORS,
        ("mindstudio-probe", "", "msprobe: without it mindformers ends with: save not found"),
    ),
    _CANN,
    _DRIVER,
)
VLLM: tuple[Window, ...] = (
    ("vllm", ">=0.8.4.dev0,<0.9", "the version that vllm-mindspore 0.3.0 is made for"),
    ("vllm-mindspore", "==0.3.0", "the version that mindrlhf's users pin"),
    ("urllib3", "<2", "2.x has no DEFAULT_CIPHERS: the import of vLLM fails"),
)
MINDFORMERS = Known(
    (("mindspore", "==2.7.0", "mindformers 1.6.0 wants ~=2.7.0rc1"), _NUMPY, _SAFETENSORS), _CANN, _DRIVER
)
REHEARSAL: tuple[Window, ...] = (
    *MINDFORMERS.packages,
    ("transformers", ">=4.51,<5", "mindformers 1.6.0 wants 4.51.3"),
    ("mindpet", "", "mindformers imports it"),
    ("datasets", "", "mindformers imports it"),
)
"""What mindrlhf and mindformers need on a CPU; the checkouts themselves lie on PYTHONPATH."""
REHEARSAL_INSTALL = (
    "python3.11 -m venv DIR"
    " && DIR/bin/pip install mindspore==2.7.0 mindformers==1.6.0 'numpy<2' 'safetensors<0.8'"
)
"""mindformers for what it requires: the checkout, which goes before it, has research/ besides."""
ONE_STAGE = Known(
    (("mindspore", ">=2.5", "mindrlhf's README of March 2025 names r2.5"), _NUMPY, _SAFETENSORS),
    ("cann", ">=8.0,<8.3", "MindSpore 2.4.10 goes with 8.0.0, 2.7.0 with 8.2.RC1"),
    ("driver", ">=24.1", "CANN 8.0.0 goes with driver 24.1.0"),
)
_PYARROW: Window = ("pyarrow", ">=21,<22", "datasets wants 21; later ones refuse the NumPy 1 that is pinned")
_HYDRA: Window = ("hydra-core", ">=1.3,<1.4", "its requirements.txt pins 1.3.2")
MINDSPEED_RL: Mapping[str, Known] = {
    "05a90d7": Known(
        (
            ("mindspore", ">=2.7", "its back end, through MSAdapter; 2.7.2 goes with CANN 8.5"),
            _NUMPY,
            _SAFETENSORS,
            _PYARROW,
            ("ray", ">=2.42.1,<2.55", "its guide pins 2.42.1, its requirements.txt 2.54.0"),
            _HYDRA,
            ("antlr4-python3-runtime", "==4.9.*", "its guide pins 4.9.3; Hydra 1.3's grammar is of 4.9"),
            ("transformers", "==4.57.1", "its requirements.txt"),
            ("tensordict", "==0.8.1", "its requirements.txt"),
            ("vllm", ">=0.11.0.dev0,<0.12", "its guide pins b8b302c of releases/v0.11.0"),
        ),
        ("cann", ">=8.5,<8.6", "its guide names 8.5.0"),
        ("driver", ">=25.0", "its guide names 25.5.0; MindSpore with CANN 8.5 goes from 25.0.RC1 on"),
    ),
    "667a547": Known(
        (
            ("mindspore", "==2.7.0", "its back end, through MSAdapter; it goes with CANN 8.2, as its guide"),
            _NUMPY,
            _SAFETENSORS,
            _PYARROW,
            ("ray", "==2.42.1", "its requirements.txt"),
            _HYDRA,
            ("antlr4-python3-runtime", ">=4.7.2,<4.10", "its guide pins 4.7.2; 4.10 reads no such grammar"),
            ("transformers", ">=4.48.2,<4.53", "its requirements.txt: 4.48.2, at 749829d^ 4.52.1"),
            ("tensordict", "==0.1.2", "its requirements.txt"),
            ("vllm", "", "its guide pins 5bc1ad6 and tells vllm-ascend that it is 0.9.0 (VLLM_VERSION)"),
        ),
        ("cann", ">=8.1,<8.3", "its guide names 8.1.RC1, at 749829d^ 8.2.RC1"),
        ("driver", ">=24.1", "its guide names 25.0.RC1; CANN 8.1 came out with 24.1"),
    ),
}
"""By contract; the newest first. Source: requirements.txt and install_guide.md at 667a547, 749829d^ and
05a90d7, which say nothing of MindSpore: its releases are matched with the CANN that they name."""
