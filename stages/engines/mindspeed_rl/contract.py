"""What each known window of MindSpeed-RL accepts, and in which window a checkout lies.

Two spans of its history have the MindSpore back end and were read: from 667a547 to the commit before
749829d, with weight converters of its own, and 05a90d7, without. On a key that is no attribute of theirs,
its configuration classes raise ValueError at 05a90d7; in the earlier span they only warn and go on
without it (c21465a, base_config.py). A checkout is judged by its own files, not by git: users copy and
patch it.
Source: Ascend/MindSpeed-RL at 667a547, at 749829d's parent and at 05a90d7: mindspeed_rl/config_cls,
mindspeed_rl/models/rule_verifier.py, configs/model/templates.json.
"""

import ast
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from stages.base.errors import ConfigError, Problem
from stages.engines.mindspeed_rl.config import VERSIONS, MindspeedRlEngine, Version
from stages.engines.programs import mismatch, program_in

TRAIN = Path("cli/train_grpo.py")
PREPROCESS = Path("cli/preprocess_data.py")
CONVERT = Path("cli/convert_ckpt.py")
"""Only in the earlier window."""
LLM_CONVERT = Path("convert_ckpt.py")
"""Converter in a checkout of MindSpeed-LLM."""
DATASET = Path("configs/datasets/deepscaler.yaml")
TEMPLATES = Path("configs/model/templates.json")
VERIFIERS_FILE = Path("mindspeed_rl/models/rule_verifier.py")
_CONFIGS = Path("mindspeed_rl/config_cls")
BROKEN = "names `self` in a static method: its MindSpore back end ends in NameError there"
MENDED = 'bind to "" instead, as 749829d^ does'
LLM_REMEDY = "check out a2c0733b9, which MindSpeed-RL's guide names"

_CLASSES = {
    "megatron": ("megatron_config.py", "MegatronConfig"),
    "rl_config": ("rl_config.py", "RLConfig"),
    "generate_config": ("generate_config.py", "GenerateConfig"),
}
"""Section -> file and class whose attributes are its keys; megatron stands for megatron_training,
actor_config, ref_config, reward_config and the model's own section."""
_KEYS = {
    "megatron": (
        "use_mcore_models num_layers hidden_size ffn_hidden_size num_attention_heads rotary_base "
        "max_position_embeddings make_vocab_size_divisible_by padded_vocab_size "
        "untie_embeddings_and_output_weights add_qkv_bias disable_bias_linear group_query_attention "
        "num_query_groups position_embedding_type norm_epsilon normalization swiglu "
        "attention_softmax_in_fp32 ai_framework use_fused_rmsnorm sequence_parallel use_flash_attn "
        "qk_layernorm kv_channels no_masked_softmax_fusion no_gradient_accumulation_fusion use_fused_swiglu "
        "use_fused_rotary_pos_emb bf16 use_distributed_optimizer tokenizer_type tokenizer_name_or_path "
        "global_batch_size seq_length save_interval train_iters stage attention_dropout init_method_std "
        "hidden_dropout distributed_backend no_shared_storage dataset_additional_keys data_path split "
        "no_shuffle full_shuffle_instruction_dataset seed micro_batch_size tensor_model_parallel_size "
        "pipeline_model_parallel_size lr lr_decay_style min_lr weight_decay lr_warmup_fraction clip_grad "
        "adam_beta1 adam_beta2 finetune load save no_load_optim no_load_rng"
    ),
    "rl_config": (
        "runtime_env_path rule_reward actor_resource max_prompt_length epochs clip_ratio entropy_coeff "
        "gamma lam kl_penalty kl_ctrl_type init_kl_coef adv_estimator verifier_function verifier_weight "
        "shuffle_mini_batch use_tensorboard blocking guarantee_order num_cpus_for_local_task "
        "use_integrated_worker ref_forward_micro_batch_size actor_forward_micro_batch_size "
        "n_samples_per_prompt mini_batch_size"
    ),
    "generate_config": (
        "trust_remote_code infer_tensor_parallel_size infer_pipeline_parallel_size "
        "infer_expert_parallel_size max_num_seqs max_model_len max_num_batched_tokens dtype "
        "gpu_memory_utilization offload_train_optimizer offload_train_grad offload_train_param "
        "sampling_config"
    ),
    "generate_config.sampling_config": "logprobs max_tokens top_p top_k min_p temperature detokenize",
    "dataset": (
        "input tokenizer_name_or_path output_prefix handler_name tokenizer_type workers log_interval "
        "prompt_type map_keys dataset_additional_keys cache_dir"
    ),
}
"""Keys of every rendered file."""
_ARGUMENT_CALLS = {
    "megatron": (
        "recompute_granularity recompute_method recompute_num_layers num_layer_list context_parallel_size"
    ),
    "rl_config": ("reference_resource reward_resource integrated_mode_config num_cpus_for_placement_group"),
}
"""Only in files of runs that ask for them."""
_OF_667A547 = {"generate_config": "enforce_eager"}
"""Only in its shipped file; 05a90d7 knows it and has true as default."""
_OF_05A90D7 = {
    "megatron": "swap_optimizer reset_attention_mask no_pad_to_seq_lengths",
    "rl_config": "use_remove_padding log_max_throughput",
}
_VERIFIERS = "acc format step strict_format base_acc"
_ADDED_VERIFIERS = "math_17k_acc acc_for_dapo acc_for_ppo math_verify_reward retool_reward"
_PROMPT_TYPES = "qwen_r1 qwen_math_r1 qwen default empty"


def keys(version: Version) -> dict[str, frozenset[str]]:
    """Section -> its keys that are used here, all of which this version accepts."""
    arguments = _OF_667A547 if version == "667a547" else _OF_05A90D7
    return {
        section: frozenset(f"{names} {_ARGUMENT_CALLS.get(section, '')} {arguments.get(section, '')}".split())
        for section, names in _KEYS.items()
    }


def of(home: str | None) -> Version:
    """Return the version of a checkout; the newest known one without a checkout.

    Raises:
        ConfigError: it is no checkout, has no MindSpore back end, or lies in no known window.
    """
    if home is None:
        return VERSIONS[0]
    root = Path(home)
    missing = [name for name in (TRAIN, PREPROCESS) if not (root / name).is_file()]
    if missing:
        fault = f"it has no {' and no '.join(map(str, missing))}"
        rule = mismatch(home, "Ascend/MindSpeed-RL", fault)
        raise _refused(home, rule, "clone it and give its directory")
    declared = {section: _attributes(home, *place_in_file) for section, place_in_file in _CLASSES.items()}
    _require_mindspore(home, declared["megatron"])
    version: Version = "667a547" if (root / CONVERT).is_file() else "05a90d7"
    unknown = [
        f"{section}.{name}"
        for section, known in declared.items()
        for name in _KEYS[section].split()
        if name not in known
    ]
    if unknown:
        window = "667a547 to 749829d^" if version == "667a547" else version
        rule = (
            f"lies in no known window: with{'' if version == '667a547' else 'out'} {CONVERT} it must be like"
        )
        raise _refused(home, f"{rule} {window}, whose {', '.join(unknown[:3])} it lacks", _remedy())
    return version


def judge(home: str) -> Version:
    """Return the version of a checkout after checking its templates and its launcher.

    Raises:
        ConfigError: it lies in none, its templates cannot be read, or its launcher is broken.
    """
    version = of(home)
    _templates(home)
    if defect := broken_port(home):
        raise _refused(home, f"{defect} {BROKEN}", MENDED)
    return version


def judge_converter(home: str) -> str:
    """Check that a directory is a checkout of MindSpeed-LLM with its converter.

    Raises:
        ConfigError: it is another program's checkout, or has no converter.
    """
    is_different = program_in(home) not in (None, "MindSpeed-LLM")
    if (Path(home) / LLM_CONVERT).is_file() and not is_different:
        return f"has {LLM_CONVERT}"
    fault = f"it has no {LLM_CONVERT}, which was removed from Ascend/MindSpeed-LLM on 2026-08-03"
    rule = mismatch(home, "Ascend/MindSpeed-LLM", fault)
    raise ConfigError([Problem("engine.mindspeed_llm_home", home, rule, LLM_REMEDY)])


def verifiers(home: str | None, version: Version) -> frozenset[str]:
    """Rule rewards that a checkout registers; an unknown one is skipped there without a word."""
    known = frozenset(_VERIFIERS.split())
    if version != "667a547":
        known |= frozenset(_ADDED_VERIFIERS.split())
    if home is None or not (Path(home) / VERIFIERS_FILE).exists():
        return known
    tree = _parse(home, VERIFIERS_FILE)
    tables = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Dict)
        and any(
            isinstance(target, ast.Name) and target.id == "rule_verifier_function" for target in node.targets
        )
    ]
    names = [key.value for table in tables for key in table.keys if isinstance(key, ast.Constant)]
    return frozenset(map(str, names)) or known


def prompt_types(home: str | None) -> frozenset[str]:
    """Names of the checkout's prompt templates."""
    return frozenset(_templates(home) if home else ()) or frozenset(_PROMPT_TYPES.split())


def files_read(home: str | None) -> tuple[Path, ...]:
    """Return the checkout's files on which the training data depends."""
    file = Path(home or "") / TEMPLATES
    return (file,) if home and file.exists() else ()


def template(home: str, name: str) -> dict[str, Any]:
    """One prompt template; an empty one where the checkout has none at all, which `notes` tells.

    Raises:
        ConfigError: they cannot be read, or have none of that name.
    """
    templates = _templates(home)
    if not templates:
        return {}
    if name not in templates:
        rule = f"must be one of the checkout's templates ({TEMPLATES}): {', '.join(sorted(templates))}"
        raise ConfigError([Problem("engine.prompt_type", name, rule)])
    return templates[name]


def converter(engine: MindspeedRlEngine) -> Iterator[Problem]:
    """Yield what is missing for converting weights; the older version contains its own converter."""
    if engine.contract == "667a547":
        return
    if engine.mindspeed_llm_home is None:
        rule = f"is required to run: contract {engine.contract} has no converter, Ascend/MindSpeed-LLM has"
        remedy = f"clone it, {LLM_REMEDY} and give its directory"
        yield Problem("engine.mindspeed_llm_home", None, rule, remedy)
        return
    try:
        judge_converter(engine.mindspeed_llm_home)
    except ConfigError as error:
        yield from error.problems


def broken_port(home: str) -> str | None:
    """Return where a checkout's launcher uses `self` in a static method, as 05a90d7 does, or None.

    It ends in NameError as soon as the workers are placed.
    """
    file = Path("mindspeed_rl/workers/scheduler/launcher_ms.py")
    if not (Path(home) / file).is_file():
        return None
    for node in ast.walk(_parse(home, file)):
        if isinstance(node, ast.FunctionDef) and any(
            isinstance(decorator, ast.Name) and decorator.id == "staticmethod"
            for decorator in node.decorator_list
        ):
            used = [name for name in ast.walk(node) if isinstance(name, ast.Name) and name.id == "self"]
            if used and "self" not in [argument.arg for argument in node.args.args]:
                return f"{file}:{used[0].lineno}"
    return None


def _require_mindspore(home: str, megatron: frozenset[str]) -> None:
    missing = [] if "ai_framework" in megatron else ["MegatronConfig.ai_framework"]
    missing += [] if (Path(home) / DATASET).is_file() else [str(DATASET)]
    if missing:
        rule = (
            f"has no MindSpore back end: it lacks {' and '.join(missing)}, which 667a547 (2025-06-09) added; "
            "559db0856, which some guides pin, has neither"
        )
        raise _refused(home, rule, _remedy())


def _remedy() -> str:
    return f"check out {VERSIONS[0]}, or a commit from 667a547 to 749829d^"


def _attributes(home: str, file: str, name: str) -> frozenset[str]:
    """Return the attributes that a class and its methods set, which are the keys that it accepts."""
    names: set[str] = set()
    for node in ast.walk(_parse(home, _CONFIGS / file)):
        if isinstance(node, ast.ClassDef) and node.name == name:
            for part in ast.walk(node):
                if isinstance(part, ast.Attribute | ast.Name) and isinstance(part.ctx, ast.Store):
                    names.add(part.attr if isinstance(part, ast.Attribute) else part.id)
    return frozenset(names)


def _templates(home: str) -> Mapping[str, dict[str, Any]]:
    file = Path(home) / TEMPLATES
    if not file.exists():
        return {}
    try:
        return {entry["name"]: entry for entry in json.loads(file.read_text(encoding="utf-8"))}
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise _refused(home, f"{TEMPLATES} must hold prompt templates ({error})", _remedy()) from None


def _parse(home: str, file: Path) -> ast.Module:
    try:
        return ast.parse((Path(home) / file).read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        rule = f"must be a checkout of Ascend/MindSpeed-RL: {file} must be readable ({error})"
        raise _refused(home, rule, _remedy()) from None


def _refused(home: str, rule: str, remedy: str) -> ConfigError:
    return ConfigError([Problem("engine.mindspeed_rl_home", home, rule, remedy)])
