"""The known version of MindSpeed-RL: recognition of a checkout, and what its files say.

From 667a547 to c21465a, the commit before 749829d, it has the MindSpore back end and converters of its own,
and starts as it is. Later ones, such as 05a90d7, have no converter, and their launcher must be patched: it
ends in NameError (launcher_ms.py:158). A checkout is recognised by its files, not by git, because users copy
and patch it.
Source: Ascend/MindSpeed-RL at 667a547, c21465a and 05a90d7: mindspeed_rl/config_cls, workers/scheduler, cli.
"""

import ast
import json
from pathlib import Path
from typing import Any

from stages.base.errors import ConfigError, Problem
from stages.base.keys import leaves
from stages.engines import programs
from stages.engines.mindspeed_rl.config import CONTRACT, Contract
from stages.engines.upstream_keys import Schema

TRAIN = Path("cli/train_grpo.py")
PREPROCESS = Path("cli/preprocess_data.py")
CONVERT = Path("cli/convert_ckpt.py")
TEMPLATES = Path("configs/model/templates.json")
VERIFIERS = Path("mindspeed_rl/models/rule_verifier.py")
MEGATRON_CONFIG = Path("mindspeed_rl/config_cls/megatron_config.py")
RL_CONFIG = Path("mindspeed_rl/config_cls/rl_config.py")
CLASSES = {
    "MegatronConfig": MEGATRON_CONFIG,
    "RLConfig": RL_CONFIG,
    "GenerateConfig": Path("mindspeed_rl/config_cls/generate_config.py"),
    "ProfilerConfig": Path("mindspeed_rl/config_cls/mindstudio_config.py"),
    "MsprobeConfig": Path("mindspeed_rl/config_cls/mindstudio_config.py"),
}
"""Configuration class -> its file."""
SECTIONS = {
    "megatron_training": "MegatronConfig",
    "actor_config": "MegatronConfig",
    "ref_config": "MegatronConfig",
    "reward_config": "MegatronConfig",
    "rl_config": "RLConfig",
    "generate_config": "GenerateConfig",
    "profiler_config.integrated": "ProfilerConfig",
    "msprobe_config": "MsprobeConfig",
}
"""Section of the training YAML -> the class that reads it (cli/train_grpo.py, parse_training_config)."""
_REMEDY = f"check out c21465a, or another commit from {CONTRACT} on to the one before 749829d"


def version_of_checkout(home: str | None) -> Contract:
    """Return the contract; raises ConfigError if a checkout has another, or an unknown one."""
    if home is None:
        return CONTRACT
    files = (TRAIN, PREPROCESS, TEMPLATES, MEGATRON_CONFIG, RL_CONFIG)
    if missing := [str(file) for file in files if not (Path(home) / file).is_file()]:
        rule = f"must be a checkout of Ascend/MindSpeed-RL: it has no {' and no '.join(missing)}"
        raise _refused(home, rule, "clone it and give its directory")
    if "ai_framework" not in read(home, MEGATRON_CONFIG):
        raise _refused(home, f"has no MindSpore back end: no ai_framework in {MEGATRON_CONFIG}")
    if not (Path(home) / CONVERT).is_file():
        raise _refused(home, f"has no converter of its own: no {CONVERT}")
    return CONTRACT


def check(home: str) -> Contract:
    """Return the contract of a checkout; raises ConfigError also if its templates cannot be read."""
    contract = version_of_checkout(home)
    templates(home)
    return contract


def templates(home: str) -> dict[str, dict[str, Any]]:
    """Return the prompt templates of a checkout by name; raises ConfigError if they cannot be read."""
    try:
        return {entry["name"]: entry for entry in json.loads(read(home, TEMPLATES))}
    except (ValueError, TypeError, KeyError) as error:
        raise _refused(home, f"{TEMPLATES} must hold prompt templates ({error})") from None


def schema(home: str) -> Schema:
    """Return the keys of the training YAML, read from the classes of a checkout without importing them.

    Raises:
        ConfigError: a file or class is missing, or cannot be parsed.
    """
    classes = {name: _class_keys(home, name, file) for name, file in CLASSES.items()}
    return Schema(
        {
            f"{section}.{key}": default
            for section, name in SECTIONS.items()
            for key, default in classes[name].items()
        }
    )


def _class_keys(home: str, name: str, file: Path) -> dict[str, Any]:
    """Return names and defaults of the keys that one class takes from its section."""
    try:
        tree = ast.parse(read(home, file))
    except (SyntaxError, ValueError) as error:
        raise _refused(home, f"{file} must be Python source ({error})") from None
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for item in node.body:
                if isinstance(item, ast.FunctionDef) and item.name == "__init__":
                    return dict(leaves(_attributes(item)))
    raise _refused(home, f"{file} must define {name} with a constructor")


def _attributes(constructor: ast.FunctionDef) -> dict[str, Any]:
    """Return names and defaults of the attributes that a constructor sets before it reads its section.

    Those that it sets afterwards replace the section's values, unless it looks them up in the section
    itself: config_dict.get(KEY, DEFAULT).
    """
    defaults: dict[str, Any] = {}
    is_read = False
    for item in constructor.body:
        is_read = is_read or ast.unparse(item).startswith("self.update(")
        if not isinstance(item, ast.Assign) or not isinstance(item.targets[0], ast.Attribute):
            continue
        calls = [part for part in ast.walk(item.value) if isinstance(part, ast.Call)]
        lookups = [call for call in calls if ast.unparse(call).startswith("config_dict.get(")]
        if is_read and not lookups:
            continue
        value = item.value
        if lookups:
            value = lookups[0].args[1] if len(lookups[0].args) > 1 else ast.Constant(None)
        name = item.targets[0].attr
        if isinstance(value, ast.Attribute):  # self.a = self.b
            defaults.setdefault(name, defaults.get(value.attr))
        else:
            defaults.setdefault(name, _constant(value))
    return defaults


def _constant(node: ast.expr) -> Any:
    """Return a constant, or a product or power of constants; None for anything else."""
    try:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Pow):
            left, right = _constant(node.left), _constant(node.right)
            return left * right if isinstance(node.op, ast.Mult) else left**right
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


def read(home: str, file: Path) -> str:
    """Return the text of a checkout's file; raises ConfigError if it cannot be read."""
    return programs.read("engine.mindspeed_rl_home", home, file, "Ascend/MindSpeed-RL", _REMEDY)


def _refused(home: str, rule: str, remedy: str = _REMEDY) -> ConfigError:
    return ConfigError([Problem("engine.mindspeed_rl_home", home, rule, remedy)])
