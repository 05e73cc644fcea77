"""Import hooks: change a module after it was executed; provide modules that are not installed."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import sys
from collections.abc import Callable, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Change = Callable[[ModuleType], None]
VLLM_VERSION = "0.8.4"
"""Version for which mindrlhf uses its code for vLLM 0.8 (third_party/vllm/__init__.py)."""


class Changed(MetaPathFinder):
    """Runs a function after a module was executed and before its importer sees it."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self.changes = dict(changes)

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the module's own spec with an extended loader; each module is extended once."""
        change = self.changes.pop(name, None)
        spec = importlib.util.find_spec(name) if change is not None else None
        if change is None or spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class Provided(MetaPathFinder, Loader):
    """Provides every module below `roots`, with the attributes in vllm.NAMES and empty classes."""

    def __init__(self, *roots: str) -> None:
        self.roots = roots

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return a spec for any module below a root."""
        if name.partition(".")[0] not in self.roots:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=True)

    def exec_module(self, module: Any) -> None:
        """Let the module find its attributes when they are read; those in lower case are submodules."""
        names = importlib.import_module("grpoflow_cpu.vllm").NAMES

        def attribute(name: str) -> Any:
            if name.startswith("__"):  # Python's protocols must stay undefined
                raise AttributeError(name)
            if name in names or not name.islower():
                return names.get(name, type(name, (), {}))
            return importlib.import_module(f"{module.__name__}.{name}")

        module.__getattr__ = attribute


def install() -> None:
    """Install all import hooks."""
    from . import mindformers_cpu, mindrlhf_cpu, mindspore_cpu

    changes = {**mindspore_cpu.CHANGES, **mindformers_cpu.CHANGES, **mindrlhf_cpu.CHANGES}
    sys.meta_path[:0] = [Changed(changes), Provided("vllm", "vllm_mindspore")]
    version = importlib.metadata.version

    def version_of(distribution_name: str) -> str:
        return VLLM_VERSION if distribution_name == "vllm" else version(distribution_name)

    importlib.metadata.version = version_of
