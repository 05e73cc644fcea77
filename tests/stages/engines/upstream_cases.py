"""Engines with engine.upstream: a run of each contract, its fields, and what is rendered from which keys."""

from __future__ import annotations

import copy
import functools
import importlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from pipeline.config.compose import flat
from pipeline.config.load import load
from stages.base.errors import ConfigError
from stages.base.rules import Rules
from stages.engines.mindrlhf.files import FILES, all_configs
from stages.engines.mindrlhf.stage import paths_of as mindrlhf_paths
from stages.engines.upstream import Upstream, leaves

SECTIONS = ("model", "layout", "tokenize", "rollout", "reward", "train", "seed")
"""Sections that are rendered, besides the engine's."""
DECLARING = {
    "mindrlhf": "files",
}
"""Engine -> its module with the fields of its files."""
RUN = Path("/run")
MINDRLHF_FILES = {
    "grpo_config": "grpo_config.yaml",
    **{f"model.{role}": file for role, file in FILES.items()},
}
Values = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Case:
    """One engine at one contract."""

    name: str
    engine: str
    """Package in stages.engines."""
    stage: str
    """Its module with `render`."""
    overrides: tuple[str, ...]
    files: Mapping[str, str]
    """Path below `upstream` -> rendered file."""
    values: Callable[[Any], Values]
    """Return what a job is rendered to without `upstream`, by the same paths."""

    def _module(self, name: str) -> Any:
        return importlib.import_module(f"stages.engines.{self.engine}.{name}")

    @property
    def section(self) -> str:
        """Section with the engine's settings."""
        return "engine"

    @property
    def table(self) -> Path:
        """The handwritten table."""
        return Path(self._module(DECLARING[self.engine]).FIELDS / "keys.yaml")

    @functools.cached_property
    def config(self) -> dict[str, Any]:
        """Plain configuration."""
        return load(["model.path=/models/qwen", *self.overrides]).plain()

    @functools.cached_property
    def upstream(self) -> Upstream:
        """Fields of the program's files."""
        fields: Upstream = self._module(DECLARING[self.engine]).fields(self.job(self.config))
        return fields

    @property
    def rules(self) -> Rules[Any]:
        """Rules of the engine."""
        rules: Rules[Any] = self._module("rules").RULES
        return rules

    def job(self, config: Values) -> Any:
        """Return the job of a plain configuration."""
        return self._module("job").Job.from_config(config)

    def rendered(self, config: Values) -> dict[str, Any]:
        """Return the values in the rendered files by path."""
        texts = self._module(self.stage).render(config, {"tokenize": Path("/data")}, RUN).files
        return _by_path({path: yaml.safe_load(texts[file]) for path, file in self.files.items()})

    def without_upstream(self, config: Values) -> dict[str, Any]:
        """Return the rendered values by path, without `upstream`; no YAML is written."""
        return _by_path(self.values(self.job(config)))


def _by_path(files: Values) -> dict[str, Any]:
    return {key: value for path, values in files.items() for key, value in leaves(values, path)}


def _mindrlhf_values(job: Any) -> Values:
    files = all_configs(job, mindrlhf_paths(job, RUN, Path("/data")), resume=False)
    return {path: files[name] for path, name in MINDRLHF_FILES.items()}


def _mindrlhf(name: str, *overrides: str) -> Case:
    files = {path: f"configs/{file}" for path, file in MINDRLHF_FILES.items()}
    return Case(f"mindrlhf {name}", "mindrlhf", "stage", overrides, files, _mindrlhf_values)


QWEN = ("engine=mindrlhf", "model=qwen2_5_7b", "layout=dp2_mp2_pp2")
CASES = (
    _mindrlhf("e8a8fc1", *QWEN),
    _mindrlhf("0cd087455", *QWEN, "engine.contract=0cd087455"),
    _mindrlhf("DeepSeek-V3", "experiment=mindrlhf_deepseek_v3"),
)
CHOICES = (
    "off", "mindformers", "constant", "linear", "cosine", "hf_safetensors", "ms_safetensors", "ckpt", "file",
    "qwen", "instruct", "float16", "dr_grpo", "drop", "truncate", "qwen_r1",
    "dapo", "sequence", "npu", "cpu", "sglang",
)  # fmt: skip
"""Values of keys that have choices; a key refuses those of other keys."""


def changed(value: Any) -> Iterator[Any]:
    """Yield other values of a key; reading the configuration refuses those of a wrong type."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value * 2, value + 1, value / 2, 0, None)
    elif isinstance(value, str):
        yield from (*CHOICES, f"{value}x")
    elif isinstance(value, list | tuple):
        yield from ([], [*value, *value], [*value, 1.0], [*value, "format"], [1, -1], ["format"])
    elif value is None:
        yield from (2, 0.5, "x", 4096, [3])


def dependencies(
    config: Mapping[str, Any],
    sections: Iterable[str],
    render: Callable[[Mapping[str, Any]], Mapping[str, Any]],
) -> dict[str, set[str]]:
    """Return for each rendered path the configuration keys whose change changes, adds or removes it.

    Args:
        config: plain configuration.
        sections: sections whose keys are changed.
        render: function that returns the rendered values by path.
    """
    before, result = render(config), defaultdict(set)
    for key, value in flat({name: config[name] for name in sections}).items():
        for replacement in changed(value):
            try:
                after = render(put(copy.deepcopy(dict(config)), key, replacement))
            except (ConfigError, ValueError, TypeError, KeyError, AssertionError, ArithmeticError):
                continue  # no value of this key
            for path in before | after:
                if before.get(path, "absent") != after.get(path, "absent"):
                    result[path].add(key)
    return dict(result)


def put(values: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Set a value by its dotted path in nested groups; return them."""
    *groups, last = path.split(".")
    section = values
    for group in groups:
        section = section.setdefault(group, {})
    section[last] = value
    return values
