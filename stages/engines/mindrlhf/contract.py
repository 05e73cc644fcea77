"""Versions of mindrlhf, recognised from the files of a checkout: users copy and patch them.

Its dataclasses are built from the keys of grpo_config.yaml, so an unknown key raises TypeError there.
Source: mindrlhf at 0cd087455 and e8a8fc1, mindrlhf/configs/grpo_configs.py and
examples/grpo/qwen_grpo_tutorial/main.py.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.base.errors import ConfigError, Problem
from stages.engines import programs
from stages.engines.mindformers.checkout import ARGUMENT
from stages.engines.mindrlhf.config import VERSIONS, Version
from stages.models.families.qwen2 import TUTORIAL as QWEN2_TUTORIAL
from stages.models.family import Mindrlhf

CONFIGS = Path("mindrlhf/configs/grpo_configs.py")
_ARGUMENTS = (
    "config dataset_file tokenizer_dir actor_checkpoint_path ref_checkpoint_path generate_checkpoint_path "
    "save_checkpoint_dir resume_training"
)
_NAME_ARGUMENTS: Mapping[Version, str] = {
    "e8a8fc1": "model_name tokenizer_type",
    "0cd087455": "custom_model_name",
}


def recognise(home: str | None, tutorial: Mindrlhf = QWEN2_TUTORIAL) -> Version:
    """Return the version whose arguments a checkout's main.py takes; the newest one without a checkout.

    Raises:
        ConfigError: it is no checkout, or takes the arguments of no known version.
    """
    if home is None:
        return VERSIONS[0]
    declared, problems = frozenset(ARGUMENT.findall(read(home, tutorial.main))), []
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
    """Return the keys of a grpo_config.yaml that the dataclasses of a checkout do not declare."""
    tree = ast.parse((Path(home) / CONFIGS).read_text(encoding="utf-8"))
    fields = {
        node.name.lower(): {
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }

    def unknown(section: str, values: Mapping[str, Any]) -> Iterator[str]:
        known = fields.get(section.rpartition(".")[2].replace("_", ""), set())  # rl_config: class RLConfig
        for key, value in values.items():
            if key not in known:
                yield f"{section}.{key}"
            elif isinstance(value, dict):
                yield from unknown(f"{section}.{key}", value)

    return [name for section, values in rendered.items() for name in unknown(section, values)]
