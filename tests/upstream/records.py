"""Records of the configuration fields of upstream's programs, made from their own classes.

`python -m tests.upstream.records` writes them into stages/engines; test_records.py compares them.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from tests.upstream.sources import ROOT, UPSTREAM

ENGINES = ROOT / "stages" / "engines"
HEADER = "# Fields and defaults of upstream's classes. Written by `python -m tests.upstream.records`.\n"
TEMPLATE = "mindformers/tools/register/template.py"
MINDFORMERS = "mindformers-051d65f"
NETWORKS = {
    "LlamaConfig": "mindformers/models/llama/llama_config.py",
    "DeepseekV3Config": "research/deepseek3/deepseek3_config.py",
}


def mindrlhf(home: Path) -> dict[str, Any]:
    """Return the dataclasses that GRPOConfig builds from grpo_config.yaml."""
    module = _module(home / "mindrlhf/configs/grpo_configs.py")
    classes: dict[str, Any] = {}
    sections: dict[str, str] = {}

    def add(path: str, cls: Any) -> None:
        classes[cls.__name__] = {}
        sections[path] = cls.__name__
        for field in dataclasses.fields(cls):
            if dataclasses.is_dataclass(field.default):
                add(f"{path}.{field.name}", field.default)
            else:
                classes[cls.__name__][field.name] = field.default

    for name, value in vars(module.GRPOConfig).items():
        if dataclasses.is_dataclass(value):
            add(name, value)
    return {"classes": classes, "sections": sections}


def mindformers(home: Path) -> dict[str, Any]:
    """Return the classes of mindformers' template, which checks the keys of every YAML file."""
    tree = ast.parse((home / TEMPLATE).read_text(encoding="utf-8"))
    found = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    (names,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
    assert isinstance(names, ast.Dict)
    classes: dict[str, Any] = {}
    sections, opened = {}, []
    for key, value in zip(names.keys, names.values, strict=True):
        assert key is not None and isinstance(value, ast.Name)
        section, cls = ast.literal_eval(key), value.id
        attributes = dict(_attributes(found[cls]))
        fields = {name: value for name, value in attributes.items() if not name.startswith("_")}
        bases = [ast.unparse(base) for base in found[cls].bases]
        is_list = bases == ["ListConfig"]
        strict = attributes.get("_raise_error_for_unexpected_key", bases == ["Config"])
        opened += [] if strict or is_list else [cls]
        classes[cls] = list(fields.values()) if is_list else fields
        sections["" if section == "general_config" else section] = cls
    return {"classes": classes, "sections": sections, "open": opened}


def network(home: Path, name: str) -> dict[str, Any]:
    """Return parameters and defaults of a network's configuration; None for defaults that are objects."""
    tree = ast.parse((home / NETWORKS[name]).read_text(encoding="utf-8"))
    (node,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
    (init,) = (item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    names = [argument.arg for argument in init.args.args[1:]]
    fields = dict(zip(names, map(_value, init.args.defaults), strict=True))
    return {"classes": {name: fields}, "sections": {"": name}}


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    for item in node.body:
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            yield item.targets[0].id, _value(item.value)


def _value(node: ast.expr) -> Any:
    """Return a constant, or a product or power of constants; None for anything else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Pow):
        left, right = _value(node.left), _value(node.right)
        return left * right if isinstance(node.op, ast.Mult) else left**right
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _module(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"{file.stem}_recorded", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def text(content: dict[str, Any]) -> str:
    """Return a record's YAML."""
    return HEADER + str(yaml.safe_dump(content, sort_keys=False, width=110))


@dataclass(frozen=True)
class Record:
    """One recorded file."""

    file: Path
    source: str
    """Name of its directory in ./upstream."""
    content: Callable[[Path], dict[str, Any]]
    """Return the record, given a checkout."""


RECORDS = (
    *(
        Record(ENGINES / f"mindrlhf/fields/{version}.yaml", f"mindrlhf-{version}", mindrlhf)
        for version in ("e8a8fc1", "0cd087455")
    ),
    Record(ENGINES / "mindformers/fields/template.yaml", MINDFORMERS, mindformers),
    *(
        Record(ENGINES / f"mindformers/fields/{name}.yaml", MINDFORMERS, partial(network, name=name))
        for name in NETWORKS
    ),
)

if __name__ == "__main__":
    for record in RECORDS:
        record.file.parent.mkdir(exist_ok=True)
        record.file.write_text(text(record.content(UPSTREAM / record.source)), encoding="utf-8")
