"""Recognition of checkouts with a known grpo_one_stage.py by their files: users copy and patch them.

Source: mindrlhf 2d0e84d (2025-03-21) to before f251809 (2025-03-24), which removed the script.
"""

import re
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.engines.mindformers.checkout import ARGUMENT
from stages.engines.mindrlhf.contract import read
from stages.engines.mindrlhf_one_stage.config import CONTRACT

ENTRY = Path("examples/grpo/qwen_grpo_tutorial/grpo_one_stage.py")
TRAINER = Path("mindrlhf/trainer/grpo_trainer.py")
ARGUMENTS = (
    "sft_path_infer sft_path_train vocab_path merges_file_path mind_dataset_dir save_ckpt_dir use_parallel "
    "load_sft_checkpoint_infer load_sft_checkpoint_train load_ref_checkpoint enable_compile_cache "
    "pre_num_generations pre_store_data"
)
"""Arguments that a run gives."""
DESCRIPTION = "a checkout of mindrlhf from 2d0e84d (2025-03-21) to before f251809 (2025-03-24)"
_COUNTS_ROLLOUTS = re.compile(r"def make_experience\([^)]*\bnum_rollouts\b")


def recognise(home: str | None) -> str:
    """Return the contract of a checkout, or the assumed one without a checkout.

    Raises:
        ConfigError: the checkout has no script, or an older one.
    """
    if home is None:
        return CONTRACT
    remedy = f"check out {CONTRACT}, or choose engine=mindrlhf"
    declared = ARGUMENT.findall(read(home, ENTRY, remedy))
    missing = [f"--{name}" for name in ARGUMENTS.split() if name not in declared]
    missing += (
        [] if _COUNTS_ROLLOUTS.search(read(home, TRAINER, remedy)) else ["num_rollouts of make_experience"]
    )
    if not missing:
        return CONTRACT
    rule = f"must be {DESCRIPTION}: {', '.join(missing)} missing"
    raise ConfigError([Problem("engine.mindrlhf_home", home, rule, remedy)])
