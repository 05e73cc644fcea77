"""Versions of grpo_one_stage.py, recognised from the files of a checkout: users copy and patch them.

Source: mindrlhf 32599d0 (2025-02-21), 875f92b (2025-02-27: --only_save_strategy removed, a trial generation
before training) and 2d0e84d (2025-03-21: num_rollouts has an effect) to before f251809 (2025-03-24), which
removed the script.
"""

import re
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.engines.mindformers.checkout import ARGUMENT
from stages.engines.mindrlhf_one_stage.config import WINDOWS, Window
from stages.engines.programs import mismatch

ENTRIES = (
    Path("examples/grpo/qwen_grpo_tutorial/grpo_one_stage.py"),  # since 55c9291 (2025-03-06)
    Path("examples/qwen_grpo_tutorial/grpo_one_stage.py"),
)
TRAINER = Path("mindrlhf/trainer/grpo_trainer.py")
ARGUMENTS = (
    "sft_path_infer sft_path_train vocab_path merges_file_path mind_dataset_dir save_ckpt_dir use_parallel "
    "load_sft_checkpoint_infer load_sft_checkpoint_train load_ref_checkpoint enable_compile_cache"
)
_COUNTS_ROLLOUTS = re.compile(r"def make_experience\([^)]*\bnum_rollouts\b")


def arguments(window: Window) -> frozenset[str]:
    """Return the arguments of grpo_one_stage.py that a run gives."""
    added = "only_save_strategy" if window == "32599d0" else "pre_num_generations pre_store_data"
    return frozenset(f"{ARGUMENTS} {added}".split())


def entry(home: Path, window: Window) -> Path:
    """Return the path of the script, even if it does not exist."""
    default = ENTRIES[1] if window == "32599d0" else ENTRIES[0]
    return next((home / path for path in ENTRIES if (home / path).is_file()), home / default)


def recognise(home: str | None) -> Window:
    """Return the version of a checkout; the newest known one without a checkout.

    Raises:
        ConfigError: the checkout contains no known version.
    """
    if home is None:
        return WINDOWS[0]
    root = Path(home)
    try:
        declared = frozenset(ARGUMENT.findall(entry(root, WINDOWS[0]).read_text(encoding="utf-8")))
        trainer = (root / TRAINER).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        fault = (
            "from 32599d0 (2025-02-21) to before f251809 (2025-03-24) "
            f"{ENTRIES[0].name} and {TRAINER} must be readable ({error})"
        )
        rule = mismatch(home, "mindspore-ai/mindrlhf", fault)
        problem = Problem("engine.mindrlhf_home", home, rule, "or choose engine=mindrlhf")
        raise ConfigError([problem]) from None
    newer: Window = "2d0e84d" if _COUNTS_ROLLOUTS.search(trainer) else "875f92b"
    window: Window = "32599d0" if "only_save_strategy" in declared else newer
    missing = sorted(arguments(window) - declared)
    if missing:
        rule = f"its {ENTRIES[0].name} lacks {', '.join(f'--{name}' for name in missing)} of {window}"
        remedy = f"check out one of {', '.join(WINDOWS)}"
        raise ConfigError([Problem("engine.mindrlhf_home", home, rule, remedy)])
    return window
