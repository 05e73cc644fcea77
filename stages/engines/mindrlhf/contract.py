"""Versions of mindrlhf, recognised from the files of a checkout: users copy and patch them.

Its dataclasses are built from the keys of grpo_config.yaml, so an unknown key raises TypeError there.
Source: mindrlhf at 0cd087455 and e8a8fc1, mindrlhf/configs/grpo_configs.py and
examples/grpo/qwen_grpo_tutorial/main.py.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stages.base.errors import ConfigError, Problem
from stages.engines import programs
from stages.engines.mindformers.checkout import ARGUMENT
from stages.engines.mindrlhf.config import VERSIONS, Version
from stages.engines.upstream import leaves
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
    """Return the version whose arguments main.py takes (without one the newest), or raise ConfigError."""
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
    """Return the keys of a grpo_config.yaml that no dataclass of a checkout declares."""
    declared = set(re.findall(r"\b(\w+)\s*:", read(home, CONFIGS)))
    return [path for path, _ in leaves(rendered) if path.rpartition(".")[2] not in declared]
