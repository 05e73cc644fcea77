"""Keys of mindformers' YAML files and their defaults, read from the classes of a checkout.

Nothing of the checkout is executed: its modules import MindSpore, which plans do without.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.engines.upstream_keys import Schema, leaves
from stages.models.family import Network

TEMPLATE = "mindformers/tools/register/template.py"
"""File with a class for each section, which checks the keys of every YAML file."""
MODEL_CONFIG, MOE_CONFIG = "model.model_config", "moe_config"
ANY_TYPE = (
    "runner_config.sink_mode",
    # a number for each pipeline stage, or a choice by name
    "recompute_config.select_comm_recompute",
    "recompute_config.parallel_optimizer_comm_recompute",
    "recompute_config.mp_comm_recompute",
)
"""Keys that take other types than that of their default."""


def finetune_schema(home: str, network: Network) -> Schema | None:
    """Return the keys of a YAML file for training; None if the checkout has no TEMPLATE."""
    if (tree := parse(home, TEMPLATE)) is None:
        return None
    found = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    defaults: dict[str, Any] = {}
    opened = []
    for section, name in _sections(tree):
        attributes = dict(_attributes(found[name]))
        fields = {key: value for key, value in attributes.items() if not key.startswith("_")}
        bases = [ast.unparse(base) for base in found[name].bases]
        if "ListConfig" in bases:
            defaults[section] = list(fields.values())
            continue
        defaults |= dict(leaves(fields, section))
        if not attributes.get("_raise_error_for_unexpected_key", "Config" in bases):
            opened.append(section)
    defaults |= dict.fromkeys(ANY_TYPE)
    defaults |= network_keys(home, network, MODEL_CONFIG) or {}
    return Schema(defaults, tuple(opened))


def model_file_schema(home: str, network: Network) -> Schema:
    """Return the keys of model_config and moe_config, the sections of mindrlhf's model files."""
    keys = network_keys(home, network, MODEL_CONFIG)
    defaults, opened = dict(keys or {}), [] if keys else [MODEL_CONFIG]
    if network.experts is not None:
        complete = finetune_schema(home, network)
        start = f"{MOE_CONFIG}."
        known = {} if complete is None else complete.defaults
        experts = {name: value for name, value in known.items() if name.startswith(start)}
        defaults |= experts
        opened += [] if experts else [MOE_CONFIG]
    return Schema(defaults, tuple(opened))


def network_keys(home: str, network: Network, section: str) -> dict[str, Any] | None:
    """Return the keys of a network's model_config in a section; None if the checkout has no such class.

    They are the arguments of its constructor; defaults that are objects are None.
    """
    file, name = network.config
    tree = parse(home, file)
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            (init,) = (item for item in node.body if getattr(item, "name", "") == "__init__")
            assert isinstance(init, ast.FunctionDef)
            names = [argument.arg for argument in init.args.args[1:]]
            values = [constant(default) for default in init.args.defaults]
            values = [None] * (len(names) - len(values)) + values
            return {f"{section}.{key}": value for key, value in zip(names, values, strict=True)}
    return None


def parse(home: str, file: str | Path) -> ast.Module | None:
    """Return the syntax tree of a checkout's file; None if it cannot be read, so that nothing is known."""
    try:
        return ast.parse((Path(home) / file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return None


def constant(node: ast.expr) -> Any:
    """Return a constant, or a product or power of constants; None for anything else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Pow):
        left, right = constant(node.left), constant(node.right)
        if left is None or right is None:
            return None
        return left * right if isinstance(node.op, ast.Mult) else left**right
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def under(group: str, schema: Schema) -> Schema:
    """Return the same keys below a group."""
    defaults: Mapping[str, Any] = {f"{group}.{name}": value for name, value in schema.defaults.items()}
    return Schema(defaults, tuple(f"{group}.{name}" for name in schema.open))


def _sections(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each section of a YAML file, empty for the top level, and the name of its class."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Name):
                    yield ("" if key.value == "general_config" else str(key.value)), value.id


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    for item in node.body:
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            yield item.targets[0].id, constant(item.value)
