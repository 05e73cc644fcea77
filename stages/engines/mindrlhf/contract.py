"""Versions of mindrlhf, recognised from the files of a checkout, and the keys that its classes have.

Users copy and patch checkouts, so that no commit says what a checkout can do. Its dataclasses are built from
the keys of grpo_config.yaml; an unknown key raises TypeError there.

Source: mindrlhf at 0cd087455 and e8a8fc1, mindrlhf/configs/grpo_configs.py and
examples/grpo/qwen_grpo_tutorial/main.py.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.base.errors import ConfigError, Problem
from stages.base.keys import leaves
from stages.base.layout import ROLES
from stages.engines import programs
from stages.engines.mindformers import checkout as mindformers
from stages.engines.mindrlhf.config import VERSIONS, Version
from stages.engines.upstream_keys import Schema
from stages.models.families import network_of
from stages.models.families.qwen2 import TUTORIAL as QWEN2_TUTORIAL
from stages.models.family import Mindrlhf
from stages.models.shape import Shape

CONFIGS = Path("mindrlhf/configs/grpo_configs.py")
_ARGUMENTS = (
    "config dataset_file tokenizer_dir actor_checkpoint_path ref_checkpoint_path generate_checkpoint_path "
    "verifier_function verifier_weight save_checkpoint_dir resume_training"
)
_NAME_ARGUMENTS: Mapping[Version, str] = {
    "e8a8fc1": "model_name tokenizer_type",
    "0cd087455": "custom_model_name",
}


def recognise(home: str | None, tutorial: Mindrlhf = QWEN2_TUTORIAL) -> Version:
    """Return the version whose arguments main.py takes (without a checkout the newest); raise ConfigError."""
    if home is None:
        return VERSIONS[0]
    declared, problems = frozenset(mindformers.ARGUMENT.findall(read(home, tutorial.main))), []
    versions = [version for version in VERSIONS if version in (tutorial.contracts or VERSIONS)]
    for version in versions:
        missing = sorted(set(f"{_ARGUMENTS} {_NAME_ARGUMENTS[version]}".split()) - declared)
        if not missing:
            return version
        problems.append(f"for {version} it lacks {', '.join(f'--{name}' for name in missing[:3])}")
    rule = f"its {tutorial.main} has no known interface: {'; '.join(problems)}"
    remedy = f"check out {' or '.join(versions)}"
    raise ConfigError([Problem("engine.mindrlhf_home", home, rule, remedy)])


def read(home: str, file: str | Path, remedy: str = "") -> str:
    """Return the text of a checkout's file; raises ConfigError if it cannot be read."""
    return programs.read("engine.mindrlhf_home", home, file, "mindspore-ai/mindrlhf", remedy)


def unknown_keys(home: str, rendered: Mapping[str, Any]) -> list[str]:
    """Return the keys of a grpo_config.yaml that no dataclass of a checkout declares."""
    declared = set(re.findall(r"\b(\w+)\s*:", read(home, CONFIGS)))
    return [path for path, _ in leaves(rendered) if path.rpartition(".")[2] not in declared]


def schema(home: str | None, mindformers_home: str | None, model: Shape) -> Schema | None:
    """Return the keys below engine.upstream that the checkouts have; None without any checkout.

    Of a file whose checkout or class is missing nothing is known, so that it takes any key.
    """
    if home is None and mindformers_home is None:
        return None
    config = None if home is None else _grpo_config(home)
    parts = [Schema({}, ("grpo_config",)) if config is None else mindformers.under("grpo_config", config)]
    for role in ROLES:
        group = f"model.{role}"
        if mindformers_home is None:
            parts.append(Schema({}, (group,)))
        else:
            found = mindformers.model_file_schema(mindformers_home, network_of(model))
            parts.append(mindformers.under(group, found))
    defaults = {name: default for part in parts for name, default in part.defaults.items()}
    return Schema(defaults, tuple(group for part in parts for group in part.open))


def _grpo_config(home: str) -> Schema | None:
    """Return the keys of grpo_config.yaml: fields of the dataclasses that GRPOConfig names."""
    tree = mindformers.parse(home, CONFIGS)
    found = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)} if tree else {}
    if "GRPOConfig" not in found:
        return None
    defaults: dict[str, Any] = {}
    for item in found["GRPOConfig"].body:
        if isinstance(item, ast.Assign) and isinstance(item.value, ast.Name) and item.value.id in found:
            (target,) = item.targets
            defaults |= dict(_fields(found, item.value.id, ast.unparse(target)))
    defaults |= dict.fromkeys(name for name in defaults if name.endswith(_ANY_TYPE))
    return Schema(defaults)


_ANY_TYPE = tuple(
    f"recompute_config.{name}"
    for name in ("select_comm_recompute", "parallel_optimizer_comm_recompute", "mp_comm_recompute")
)
"""Keys that take other types than that of their default: a number for each pipeline stage, or names."""


def _fields(found: Mapping[str, ast.ClassDef], name: str, group: str) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a dataclass with their defaults, and those of dataclasses that are defaults."""
    for item in found[name].body:
        if isinstance(item, ast.AnnAssign) and item.value is not None:
            path = f"{group}.{ast.unparse(item.target)}"
            if isinstance(item.value, ast.Name) and item.value.id in found:
                yield from _fields(found, item.value.id, path)
            else:
                yield path, mindformers.constant(item.value)
