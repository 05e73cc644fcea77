"""What each known version of mindrlhf accepts: YAML keys and arguments; and which version a checkout is.

Its dataclasses are built from the YAML's keys, so an unknown one raises TypeError there. A checkout is
judged by the fields and arguments that its own files declare, not by git: users copy and patch it.
Source: mindrlhf at 0cd087455 and e8a8fc1, mindrlhf/configs/grpo_configs.py and
examples/grpo/qwen_grpo_tutorial/main.py.
"""

import ast
from collections.abc import Mapping
from pathlib import Path

from stages.base.errors import ConfigError, Problem
from stages.engines.mindformers.checkout import ARGUMENT
from stages.engines.mindrlhf.config import VERSIONS, Version
from stages.engines.programs import mismatch
from stages.models.families.qwen2 import TUTORIAL as QWEN2_TUTORIAL
from stages.models.family import Mindrlhf

CONFIGS = Path("mindrlhf/configs/grpo_configs.py")

_PARALLEL = (
    "data_parallel model_parallel pipeline_stage expert_parallel use_seq_parallel micro_batch_num "
    "vocab_emb_dp context_parallel"
)
_RECOMPUTE = (
    "recompute select_recompute select_comm_recompute parallel_optimizer_comm_recompute mp_comm_recompute "
    "recompute_slice_activation"
)
_HEAD: dict[str, str] = {
    "rl_config": (
        "model_name deterministic align_type dataset_file tokenizer_type tokenizer_dir epochs batch_size "
        "sink_size seq_length use_parallel load_ckpt_format parallel_mode enable_compile_cache "
        "save_strategy_dir save_data_file packing pack_num save_prompt_completions_data "
        "save_prompt_completions_interval save_prompt_completions_dir reshard_mem_opt_level reshard_mode "
        "save_ckpt_interval save_max_ckpt_num save_ckpt_format enable_reshard_optimizer tensorboard "
        "tensorboard_dir tensorboard_queue_size enable_full_monitor calculate_entropy save_checkpoint_dir "
        "performance_stats micro_batch_interleaved beta num_generations num_rollouts chunk_size "
        "gen_experience_kwargs num_iterations epsilon_low epsilon_high enable_oldpolicy seed"
    ),
    "actor_config": (
        "load save model_config parallel_config recompute_config offset enable_parallel_optimizer "
        "enable_alltoall use_eod_attn_mask_compression loss_scale_value optimizer lr_schedule"
    ),
    "actor_config.parallel_config": _PARALLEL,
    "actor_config.recompute_config": _RECOMPUTE,
    "actor_config.optimizer": "type adam_beta1 adam_beta2 eps weight_decay opt_offload",
    "actor_config.lr_schedule": "lr min_lr warmup_step decay_steps lr_decay_style",
    "ref_config": (
        "model_config load ref_model_batch_size sync_ref_model ref_model_sync_steps parallel_config "
        "recompute_config offset use_eod_attn_mask_compression"
    ),
    "ref_config.parallel_config": _PARALLEL,
    "ref_config.recompute_config": _RECOMPUTE,
    "reward_config": "verifier_function verifier_weight",
    "generate_config": (
        "model_config load infer_model_batch_size parallel_config offset use_eod_attn_mask_compression "
        "use_vllm hf_config_path block_size max_model_len max_num_batched_tokens max_num_seqs "
        "max_prompt_length num_scheduler_steps gpu_memory_utilization trust_remote_code sampling_config"
    ),
    "generate_config.parallel_config": _PARALLEL,
    "generate_config.sampling_config": (
        "temperature repetition_penalty top_p top_k bos_token_id eos_token_id pad_token_id detokenize "
        "logprobs max_tokens min_tokens min_p"
    ),
    "monitor_config": (
        "host_monitor_interval host_monitor_steps host_memory_protection host_max_memory_threshold"
    ),
    "profiler_config": (
        "profile mstx stage profile_save_path profile_level profile_with_memory profile_with_cpu "
        "profile_with_npu profile_with_stack profile_step_start profile_step_end profile_analysis "
        "profile_ranks"
    ),
    "context": (
        "mode device_target max_call_depth max_device_memory save_graphs save_graphs_path device_id "
        "jit_config memory_optimize_level ascend_config"
    ),
    "context.jit_config": "jit_level",
    "context.ascend_config": "precision_mode",
}
_ABSENT_BEFORE = {  # in 0cd087455
    "rl_config": {"tokenizer_type", "calculate_entropy", "enable_full_monitor", "enable_oldpolicy"},
    "actor_config": {"loss_scale_value"},
}
_CLASSES = {
    "rl_config": "RLConfig", "actor_config": "ActorConfig", "ref_config": "RefConfig",
    "reward_config": "RewardConfig", "generate_config": "GenerateConfig", "monitor_config": "MonitorConfig",
    "profiler_config": "ProfilerConfig", "context": "Context", "parallel_config": "ParallelConfig",
    "recompute_config": "RecomputeConfig", "optimizer": "Optimizer", "lr_schedule": "LRSchedule",
    "sampling_config": "SamplingConfig", "jit_config": "JitConfig", "ascend_config": "AscendConfig",
}  # fmt: skip
_ARGUMENTS = (
    "config dataset_file tokenizer_dir actor_checkpoint_path ref_checkpoint_path generate_checkpoint_path "
    "save_checkpoint_dir resume_training"
)


def keys(version: Version) -> dict[str, frozenset[str]]:
    """Keys of every section ("rl_config", "actor_config.optimizer", ...) that this version accepts.

    The 13 PPO keys that 0cd087455 knows besides are left out: GRPO does not read them.
    """
    known = {section: frozenset(names.split()) for section, names in _HEAD.items()}
    if version == "e8a8fc1":
        return known
    older = {name: accepted_keys - _ABSENT_BEFORE.get(name, set()) for name, accepted_keys in known.items()}
    return {
        name: accepted_keys
        for name, accepted_keys in older.items()
        if name not in ("monitor_config", "profiler_config")
    }


def arguments(version: Version) -> frozenset[str]:
    """Arguments of main.py that are used here."""
    name_arguments = ["model_name", "tokenizer_type"] if version == "e8a8fc1" else ["custom_model_name"]
    return frozenset([*_ARGUMENTS.split(), *name_arguments])


def recognise(home: str | None, tutorial: Mindrlhf = QWEN2_TUTORIAL) -> Version:
    """Return the version whose keys a checkout accepts; the newest known one without a checkout.

    Raises:
        ConfigError: it is no checkout, or accepts neither version's keys.
    """
    if home is None:
        return VERSIONS[0]
    root, main = Path(home), Path(tutorial.main)
    try:
        declared = ARGUMENT.findall((root / main).read_text(encoding="utf-8"))
        fields = _fields((root / CONFIGS).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        rule = mismatch(home, "mindspore-ai/mindrlhf", f"{main} and {CONFIGS} must be readable ({error})")
        raise ConfigError([Problem("engine.mindrlhf_home", home, rule)]) from None
    versions = [version for version in VERSIONS if version in (tutorial.contracts or VERSIONS)]
    unknown = {version: _unknown(version, frozenset(declared), fields) for version in versions}
    for version, names in unknown.items():
        if not names:
            return version
    missing = "; ".join(
        f"for {version} it lacks {', '.join(names[:3])}" for version, names in unknown.items()
    )
    remedy = f"check out {' or '.join(versions)}"
    raise ConfigError(
        [Problem("engine.mindrlhf_home", home, f"accepts no contract that is known here: {missing}", remedy)]
    )


def _unknown(version: Version, declared: frozenset[str], fields: Mapping[str, set[str]]) -> list[str]:
    """Arguments and keys of `version` that a checkout does not declare."""
    missing = [f"--{name}" for name in sorted(arguments(version) - declared)]
    for section, names in keys(version).items():
        has = fields.get(_CLASSES[section.rpartition(".")[2]], set())
        missing += [f"{section}.{name}" for name in sorted(names - has)]
    return missing


def _fields(source: str) -> dict[str, set[str]]:
    """Class name -> annotated fields, without running the file."""
    return {
        node.name: {
            item.target.id
            for item in node.body
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
        }
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }
