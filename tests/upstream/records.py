"""Records of the configuration fields of upstream's programs, made from their own classes.

`python -m tests.upstream.records` writes them into stages/engines; test_records.py compares them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.upstream.sources import ROOT, UPSTREAM

ENGINES = ROOT / "stages" / "engines"
HEADER = "# Fields and defaults of upstream's classes. Written by `python -m tests.upstream.records`.\n"
MINDSPEED_RL_CLASSES = {
    "MegatronConfig": "megatron_config.py",
    "RLConfig": "rl_config.py",
    "GenerateConfig": "generate_config.py",
    "ProfilerConfig": "mindstudio_config.py",
    "MsprobeConfig": "mindstudio_config.py",
}
MINDSPEED_RL_SECTIONS = {
    **dict.fromkeys(("megatron_training", "actor_config", "ref_config", "reward_config"), "MegatronConfig"),
    "rl_config": "RLConfig",
    "generate_config": "GenerateConfig",
    "profiler_config.integrated": "ProfilerConfig",
    "msprobe_config": "MsprobeConfig",
}
"""Section -> class, as cli/train_grpo.py's parse_training_config reads them."""


def mindspeed_rl(home: Path) -> dict[str, Any]:
    """Return the attributes that MindSpeed-RL's configuration classes take from the YAML file."""
    classes = {}
    for name, file in MINDSPEED_RL_CLASSES.items():
        tree = ast.parse((home / "mindspeed_rl/config_cls" / file).read_text(encoding="utf-8"))
        (node,) = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)
        classes[name] = dict(_instance_attributes(node))
    return {"classes": classes, "sections": MINDSPEED_RL_SECTIONS}


def _instance_attributes(node: ast.ClassDef) -> Iterator[tuple[str, Any]]:
    """Yield names and defaults of the attributes that a constructor sets before it reads the file's values.

    Those that it sets afterwards replace the file's values, unless it takes them from the file itself.
    """
    (init,) = (item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__")
    defaults: dict[str, Any] = {}
    is_read = False
    for item in init.body:
        is_read = is_read or ast.unparse(item).startswith("self.update(")
        if not isinstance(item, ast.Assign) or not isinstance(item.targets[0], ast.Attribute):
            continue
        calls = [part for part in ast.walk(item.value) if isinstance(part, ast.Call)]
        lookups = [call for call in calls if ast.unparse(call).startswith("config_dict.get(")]
        value = lookups[0].args[1] if lookups else item.value
        if lookups or not is_read:
            same = value.attr if isinstance(value, ast.Attribute) else ""  # self.a = self.b
            defaults.setdefault(item.targets[0].attr, defaults[same] if same else _value(value))
    yield from defaults.items()


def _value(node: ast.expr) -> Any:
    """Return a constant, or a product or power of constants; None for anything else."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Pow):
        left, right = _value(node.left), _value(node.right)
        return left * right if isinstance(node.op, ast.Mult) else left**right
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


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
        Record(ENGINES / f"mindspeed_rl/fields/{version}.yaml", f"mindspeed-rl-{commit}", mindspeed_rl)
        for version, commit in (("05a90d7", "05a90d7"), ("667a547", "c21465a"))
    ),
)

if __name__ == "__main__":
    for record in RECORDS:
        record.file.parent.mkdir(exist_ok=True)
        record.file.write_text(text(record.content(UPSTREAM / record.source)), encoding="utf-8")
