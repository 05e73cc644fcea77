"""Which version of grpo_one_stage.py a checkout holds, and what that version takes.

Judged by what its own files declare, not by git: users copy and patch it. Source: mindrlhf 32599d0
(2025-02-21), 875f92b (2025-02-27: --only_save_strategy gone, a trial of generation before training) and
2d0e84d (2025-03-21: num_rollouts counts) to before f251809 (2025-03-24), which removed the script.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.engines.mindformers.checkout import ARGUMENT
from stages.engines.mindrlhf_one_stage.config import WINDOWS, Window
from stages.engines.programs import mismatch

ENTRIES = (
    Path("examples/grpo/qwen_grpo_tutorial/grpo_one_stage.py"),  # from 55c9291 (2025-03-06) on
    Path("examples/qwen_grpo_tutorial/grpo_one_stage.py"),
)
TRAINER = Path("mindrlhf/trainer/grpo_trainer.py")
_COMMON = (
    "sft_path_infer sft_path_train vocab_path merges_file_path mind_dataset_dir save_ckpt_dir use_parallel "
    "load_sft_checkpoint_infer load_sft_checkpoint_train load_ref_checkpoint enable_compile_cache"
)
_OWN: Mapping[Window, str] = {
    "32599d0": "only_save_strategy",
    "875f92b": "pre_num_generations pre_store_data",
    "2d0e84d": "pre_num_generations pre_store_data",
}


def arguments(window: Window) -> frozenset[str]:
    """Arguments of grpo_one_stage.py that are used here."""
    return frozenset(f"{_COMMON} {_OWN[window]}".split())


def entry(home: Path, window: Window) -> Path:
    """Return the path of the script, even if it does not exist."""
    last = ENTRIES[1] if window == "32599d0" else ENTRIES[0]
    return next((home / path for path in ENTRIES if (home / path).is_file()), home / last)


def of(home: str | None) -> Window:
    """Return the version of a checkout; the newest known one without a checkout.

    Raises:
        ConfigError: it holds none that is known.
    """
    if home is None:
        return WINDOWS[0]
    root = Path(home)
    try:
        script = entry(root, WINDOWS[0]).read_text(encoding="utf-8")
        trainer = ast.parse((root / TRAINER).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        fault = (
            "from 32599d0 (2025-02-21) to before f251809 (2025-03-24) "
            f"{ENTRIES[0].name} and {TRAINER} must be readable ({error})"
        )
        rule = mismatch(home, "mindspore-ai/mindrlhf", fault)
        raise ConfigError(
            [Problem("engine.mindrlhf_home", home, rule, "or choose engine=mindrlhf")]
        ) from None
    declared = frozenset(ARGUMENT.findall(script))
    counts = _takes(trainer, "make_experience", "num_rollouts")
    for window in WINDOWS:
        if arguments(window) <= declared and counts == (window == "2d0e84d"):
            return window
    missing = "; ".join(
        f"for {window} it lacks {', '.join(f'--{name}' for name in sorted(arguments(window) - declared)[:3])}"
        for window in WINDOWS
        if arguments(window) - declared
    )
    rule = f"its {ENTRIES[0].name} takes no arguments that are known here: {missing}"
    raise ConfigError([Problem("engine.mindrlhf_home", home, rule, f"check out one of {', '.join(WINDOWS)}")])


def _takes(module: ast.Module, function: str, argument: str) -> bool:
    """Return True if a function or method of a module takes an argument."""
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == function
        and argument in [parameter.arg for parameter in node.args.args]
        for node in ast.walk(module)
    )
