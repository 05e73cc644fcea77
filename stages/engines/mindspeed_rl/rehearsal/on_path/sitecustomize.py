"""Packages that only an NPU has, as empty ones: Python imports this file first in a rehearsal's processes.

It does nothing where GRPOFLOW_REHEARSAL is not set to mindspeed_rl. Packages of ABSENT are hidden even where
they are installed, so that a rehearsal goes equally far on every machine. It needs nothing of grpoflow and
runs in the engine's interpreter, Python 3.10 or later.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

ABSENT = {
    "torch_npu": "CANN's PyTorch, imported everywhere",
    "acl": "CANN's runtime (launcher_ms.py:25, MindSpeed-LLM training/utils.py:28)",
    "torchair": "CANN's graph compiler (MindSpeed op_builder/gmm_builder.py:4)",
    "apex": "Megatron's fused optimizers (MindSpeed ca70c133 takes it as given)",
    "mindspore": "the MindSpore back end, under MSAdapter (scheduler_ms.py, init_process_group)",
    "vllm": "rollout (vllm_engine.py)",
    "vllm_ascend": "rollout (vllm_parallel_state.py)",
    "torchvision": "pictures only (multimodal_dataset.py)",
    "av": "pictures only (mm_utils.py)",
    "qwen_vl_utils": "pictures only (multimodal_dataset.py)",
}
"""Package -> what it is for, and where upstream imports it."""


class _AnythingType(type):
    def __getattr__(cls, name: str) -> Any:
        return _attribute(name)

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        if cls is Anything and arguments and isinstance(arguments[0], FunctionType | type):
            return arguments[0]  # a decorator's answer; operators are callable too, and none is decorated
        return super().__call__(*arguments, **options)


class Anything(metaclass=_AnythingType):
    """Placeholder for any name of a hidden package: a class, a function, a decorator, a false value."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Answer as the class does: for decorators with options."""
        return Anything(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return _attribute(name)

    def __bool__(self) -> bool:
        return False


def _attribute(name: str) -> Any:
    if name.startswith("__"):  # Python's own protocols must not be answered
        raise AttributeError(name)
    return Anything


class Hidden(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every module of a hidden package, as a plain one: Ray then pickles by name."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Answer for the packages of ABSENT."""
        hidden = name.partition(".")[0] in ABSENT
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if hidden else None

    def create_module(self, spec: Any) -> None:
        """Take Python's own module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill it with anything."""
        module.__file__ = f"{__file__}/{module.__name__}"
        module.__getattr__ = _attribute  # type: ignore[method-assign]
        if module.__name__ in ON_IMPORT:
            ON_IMPORT[module.__name__]()


def name_the_npu() -> None:
    """Define torch.npu as torch_npu does; base_worker.py uses it to choose a worker's card (set_device)."""
    torch: Any = importlib.import_module("torch")
    torch.npu = Anything()


def cuda_means_this_device() -> None:
    """Redirect torch.cuda to the CPU, as torch_npu.contrib.transfer_to_npu redirects it to an NPU.

    Megatron's checkpointing.py (get_rng_state) asks CUDA for its generator's state, and train_grpo.py
    (initialize_megatron) for a device.
    """
    torch: Any = importlib.import_module("torch")
    torch.cuda.get_rng_state = lambda *device: torch.get_rng_state()
    torch.cuda.set_rng_state = lambda state, *device: torch.set_rng_state(state)
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.set_device = lambda device: None


ON_IMPORT: dict[str, Callable[[], None]] = {
    "torch_npu": name_the_npu,
    "torch_npu.contrib": cuda_means_this_device,
}

if os.environ.get("GRPOFLOW_REHEARSAL") == "mindspeed_rl":
    sys.meta_path.insert(0, Hidden())
