"""Empty packages in place of those that only an NPU has; Python imports this file first.

It has no effect unless GRPOFLOW_REHEARSAL is mindspeed_rl. Installed packages of HIDDEN are hidden, too, so
that a rehearsal is the same on every machine. Imports nothing of grpoflow; runs in the engine's interpreter
(Python 3.10 or later).
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from types import FunctionType, ModuleType
from typing import Any

HIDDEN = {
    "torch_npu": "CANN's PyTorch, imported everywhere",
    "acl": "CANN's runtime (launcher_ms.py:25, MindSpeed-LLM training/utils.py:28)",
    "torchair": "CANN's graph compiler (MindSpeed op_builder/gmm_builder.py:4)",
    "apex": "Megatron's fused optimizers (MindSpeed ca70c133 imports it without a check)",
    "mindspore": "the MindSpore back end, under MSAdapter (scheduler_ms.py, init_process_group)",
    "vllm": "rollout (vllm_engine.py)",
    "vllm_ascend": "rollout (vllm_parallel_state.py)",
    "torchvision": "pictures only (multimodal_dataset.py)",
    "av": "pictures only (mm_utils.py)",
    "qwen_vl_utils": "pictures only (multimodal_dataset.py)",
}
"""Package -> its purpose, and where upstream imports it."""


class _AnythingType(type):
    def __getattr__(cls, name: str) -> Any:
        return _attribute(name)

    def __call__(cls, *arguments: Any, **options: Any) -> Any:
        if cls is Anything and arguments and isinstance(arguments[0], FunctionType | type):
            return arguments[0]  # used as a decorator
        return super().__call__(*arguments, **options)


class Anything(metaclass=_AnythingType):
    """Placeholder for any name of a hidden package: a class, a function, a decorator, a false value."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Return the same as calling the class: this is a decorator with options."""
        return Anything(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return _attribute(name)

    def __bool__(self) -> bool:
        return False


def _attribute(name: str) -> Any:
    if name.startswith("__"):  # Python's protocols must stay undefined
        raise AttributeError(name)
    return Anything


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finder of every module of a hidden package; plain modules, because Ray pickles them by name."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        """Find modules of the packages in HIDDEN."""
        hidden = name.partition(".")[0] in HIDDEN
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if hidden else None

    def exec_module(self, module: ModuleType) -> None:
        """Give every attribute of the module a placeholder."""
        module.__file__ = f"{__file__}/{module.__name__}"
        module.__getattr__ = _attribute  # type: ignore[method-assign]
        if module.__name__ == "torch_npu":
            torch: Any = importlib.import_module("torch")
            torch.npu = Anything()  # base_worker.py calls torch.npu.set_device
        if module.__name__ == "torch_npu.contrib":
            _redirect_to_cpu()


def _redirect_to_cpu() -> None:
    """Redirect torch.cuda to the CPU, as torch_npu.contrib.transfer_to_npu redirects it to an NPU.

    Megatron's checkpointing.py (get_rng_state) reads CUDA's random state, and train_grpo.py
    (initialize_megatron) asks for a device.
    """
    torch: Any = importlib.import_module("torch")
    torch.cuda.get_rng_state = lambda *device: torch.get_rng_state()
    torch.cuda.set_rng_state = lambda state, *device: torch.set_rng_state(state)
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.set_device = lambda device: None


if os.environ.get("GRPOFLOW_REHEARSAL") == "mindspeed_rl":
    sys.meta_path.insert(0, Finder())
