"""The two known versions of MindSpeed-RL: recognition of a checkout's version, and what its files say.

Two spans of its history have the MindSpore back end: from 667a547 to the commit before 749829d, with weight
converters of its own, and 05a90d7, without. A checkout is recognised by its files, not by git, because users
copy and patch it.
Source: Ascend/MindSpeed-RL at 667a547, at 749829d's parent and at 05a90d7: mindspeed_rl/config_cls.
"""

import ast
import json
import re
from pathlib import Path
from typing import Any

from stages.base.errors import ConfigError, Problem
from stages.engines import programs
from stages.engines.mindspeed_rl.config import VERSIONS, Version
from stages.engines.upstream_keys import Schema, leaves

TRAIN = Path("cli/train_grpo.py")
PREPROCESS = Path("cli/preprocess_data.py")
CONVERT = Path("cli/convert_ckpt.py")
"""Only in the earlier version."""
LLM_CONVERT = Path("convert_ckpt.py")
"""Converter in a checkout of MindSpeed-LLM."""
TEMPLATES = Path("configs/model/templates.json")
VERIFIERS = Path("mindspeed_rl/models/rule_verifier.py")
LAUNCHER = Path("mindspeed_rl/workers/scheduler/launcher_ms.py")
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
_BROKEN_PORT = re.compile(r"@staticmethod\s+def _get_free_port\(\):(?:(?!\bdef )[\s\S])*?(?=\bself\.)")
_REMEDY = f"check out {VERSIONS[0]}, or a commit from 667a547 to 749829d^"
_LLM_REMEDY = "check out a2c0733b9, which MindSpeed-RL's guide names"


def version_of_checkout(home: str | None) -> Version:
    """Return the version of a checkout, or the newest without one; raises ConfigError if it is not known."""
    if home is None:
        return VERSIONS[0]
    files = (TRAIN, PREPROCESS, TEMPLATES, MEGATRON_CONFIG, RL_CONFIG)
    if missing := [str(file) for file in files if not (Path(home) / file).is_file()]:
        rule = f"must be a checkout of Ascend/MindSpeed-RL: it has no {' and no '.join(missing)}"
        raise _refused(home, rule, "clone it and give its directory")
    if "ai_framework" not in read(home, MEGATRON_CONFIG):
        raise _refused(home, f"has no MindSpore back end: no ai_framework in {MEGATRON_CONFIG}")
    if (Path(home) / CONVERT).is_file():
        return "667a547"
    if "use_remove_padding" not in read(home, RL_CONFIG):
        rule = f"is no known version: it has neither {CONVERT} nor use_remove_padding in {RL_CONFIG}"
        raise _refused(home, rule)
    return "05a90d7"


def check(home: str) -> Version:
    """Return the version of a checkout; raises ConfigError also for broken templates or a broken launcher."""
    version = version_of_checkout(home)
    templates(home)
    if defect := broken_port(home):
        raise _refused(home, *defect)
    return version


def check_converter(home: str) -> str:
    """Raise ConfigError if a directory is no checkout of MindSpeed-LLM with its converter."""
    if (Path(home) / LLM_CONVERT).is_file():
        return f"has {LLM_CONVERT}"
    rule = f"must be a checkout of Ascend/MindSpeed-LLM: it has no {LLM_CONVERT}, removed on 2026-08-03"
    raise ConfigError([Problem("engine.mindspeed_llm_home", home, rule, _LLM_REMEDY)])


def broken_port(home: str) -> tuple[str, str] | None:
    """Return defect and remedy if the launcher uses `self` in a static method, as 05a90d7 does; or None.

    It raises NameError as soon as the workers are placed.
    """
    text = read(home, LAUNCHER)
    if (match := _BROKEN_PORT.search(text)) is None:
        return None
    line = text.count("\n", 0, match.end()) + 1
    defect = f"{LAUNCHER}:{line} uses `self` in a static method: its MindSpore back end ends in NameError"
    return defect, 'bind to "" instead, as 749829d^ does'


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
        value = lookups[0].args[-1] if lookups else item.value
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
