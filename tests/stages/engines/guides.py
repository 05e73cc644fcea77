"""The users' guides: the files and command lines that they have people write, and what grpoflow renders.

`GUIDES` names for each guide the recipe that replaces it, the shipped files in a checkout, and every intended
difference with its reason. tests/upstream/test_guides.py compares key by key; a difference that is not
listed, and a listed one that is none, fails.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATHS = "paths of a run are grpoflow's"
UNWRITTEN = "upstream's default, written so that a change of it is seen"
ONE_CARD = "one card instead of the file's eight"
ABSENT = "<absent>"


@dataclass(frozen=True)
class Guide:
    """One guide."""

    checkout: str
    """Name in ./upstream."""
    recipe: tuple[str, ...]
    stage: str
    """Stage whose rendered files are compared."""
    files: Mapping[str, str]
    """Rendered file -> the shipped one; a shipped Python file: the defaults of its dataclass."""
    command: str
    """Shipped script whose command line is compared; empty: none."""
    differences: Mapping[str, str]
    """Key, or group of keys -> why it differs. Keys of files begin with the rendered file's name."""
    program: str = "main.py"
    """Name of the program in the shipped script."""
    included: tuple[str, str, str] | None = None
    """Shipped file that another one includes: the file, its section, and the section's rendered key."""


MINDRLHF = {
    "grpo_config.rl_config.dataset_file": PATHS,
    "grpo_config.rl_config.tokenizer_dir": PATHS,
    "grpo_config.rl_config.save_strategy_dir": PATHS,
    "grpo_config.rl_config.save_prompt_completions_dir": PATHS,
    "grpo_config.rl_config.tensorboard_dir": PATHS,
    "grpo_config.rl_config.save_checkpoint_dir": PATHS,
    "grpo_config.actor_config.load": PATHS,
    "grpo_config.actor_config.save": PATHS,
    "grpo_config.actor_config.model_config": PATHS,
    "grpo_config.ref_config.load": PATHS,
    "grpo_config.ref_config.model_config": PATHS,
    "grpo_config.generate_config.load": PATHS,
    "grpo_config.generate_config.model_config": PATHS,
    "grpo_config.generate_config.hf_config_path": PATHS,
    "grpo_config.context.save_graphs_path": PATHS,
    "grpo_config.profiler_config": "only what is not the class's default is written; the profiler is off",
    "grpo_config.rl_config.tokenizer_type": "the qwen class reads <|im_end|> as a letter: no format reward",
    "grpo_config.rl_config.save_data_file": "every eighth rank would write each step's samples to /tmp",
    "grpo_config.rl_config.reshard_mode": UNWRITTEN,
    "grpo_config.rl_config.enable_full_monitor": UNWRITTEN,
    "grpo_config.rl_config.calculate_entropy": UNWRITTEN,
    "grpo_config.actor_config.parallel_config.expert_parallel": UNWRITTEN,
    "grpo_config.actor_config.recompute_config": UNWRITTEN,
    "grpo_config.actor_config.optimizer.weight_decay": "mindrlhf decays by 0.1 whatever the file says",
    "grpo_config.ref_config.parallel_config": UNWRITTEN,
    "grpo_config.ref_config.recompute_config": UNWRITTEN,
    "grpo_config.reward_config.verifier_function": "the guide's command line replaces accuracy_reward",
    "grpo_config.generate_config.offset": UNWRITTEN,
    "grpo_config.generate_config.parallel_config": UNWRITTEN,
    "grpo_config.generate_config.use_eod_attn_mask_compression": UNWRITTEN,
    "grpo_config.generate_config.num_scheduler_steps": "vLLM 0.8 always sets it to 1",
    "grpo_config.generate_config.trust_remote_code": "no code of a model directory is run",
    "grpo_config.generate_config.sampling_config.logprobs": UNWRITTEN,
    "grpo_config.generate_config.sampling_config.min_p": "off; the class's 0.01 is never handed on",
    "command.config": PATHS,
    "command.dataset_file": PATHS,
    "command.tokenizer_dir": PATHS,
    "command.actor_checkpoint_path": PATHS,
    "command.ref_checkpoint_path": PATHS,
    "command.generate_checkpoint_path": PATHS,
    "command.save_checkpoint_dir": PATHS,
    "command.model_name": UNWRITTEN,
    "command.tokenizer_type": "the qwen class reads <|im_end|> as a letter: no format reward",
}
PPO = (
    "cliprange", "cliprange_value", "gamma", "horizon", "init_kl_coef", "kl_coef", "lam", "pretrain_coef",
    "ref_mean", "ref_std", "scale_reward", "target", "vf_coef",
)  # fmt: skip
NEWER = (
    "grpo_config.profiler_config", "grpo_config.rl_config.tokenizer_type",
    "grpo_config.rl_config.enable_full_monitor", "grpo_config.rl_config.calculate_entropy",
    "command.model_name", "command.tokenizer_type",
)  # fmt: skip
"""Keys that 0cd087455 does not have."""
MINDRLHF_OLDER = {
    **{key: reason for key, reason in MINDRLHF.items() if key not in NEWER},
    **dict.fromkeys((f"grpo_config.rl_config.{key}" for key in PPO), "of PPO: GRPO does not read it"),
    "command.custom_model_name": "the qwen class reads <|im_end|> as a letter: no format reward",
}
CONFIG_JSON = "as in config.json; the file's ids are plain text in V3"
SAME_MODEL = "as in generation: without it training would compute another model"
ROLES = ("finetune", "reference")
ROUTING = ("n_group", "topk_group", "topk_method")
DEEPSEEK = {
    **{
        key: reason
        for key, reason in MINDRLHF.items()
        if key
        not in (
            "grpo_config.rl_config.tokenizer_type",
            "grpo_config.actor_config.parallel_config.expert_parallel",
            "grpo_config.reward_config.verifier_function",
        )
    },
    **{
        f"{role}.model.model_config.{name}_token_id": CONFIG_JSON
        for role in ROLES
        for name in ("bos", "eos", "pad")
    },
    **{
        f"{role}.model.model_config.{name}": SAME_MODEL
        for role in ROLES
        for name in ("extend_method", "scaling_factor")
    },
    **{
        f"{role}.model.model_config.max_position_embeddings": "at least the length of a row" for role in ROLES
    },
    **{f"{role}.moe_config.{name}": SAME_MODEL for role in ROLES for name in ROUTING},
    **{
        f"{role}.model.model_config.seq_length": "mindrlhf replaces it by that of grpo_config.yaml"
        for role in (*ROLES, "predict")
    },
    "grpo_config.actor_config.offset": "mindrlhf reads it here; the file has it in the model's alone",
    "grpo_config.generate_config.sampling_config.top_k": "1 makes all completions equal, and advantages 0",
    "reference.model.model_config.offset": UNWRITTEN,
    "reference.moe_config.aux_loss_factors": "a reference is not trained",
    "reference.moe_config.topk_bias_update_rate": "a reference is not trained",
    "reference.moe_config.enable_sdrop": "tokens beyond an expert's capacity are dropped as in training",
    "predict.model.model_config.block_size": "that of grpo_config.yaml",
    "predict.model.model_config.do_sample": "sampling is that of grpo_config.yaml",
    "predict.model.model_config.temperature": "sampling is that of grpo_config.yaml",
    "predict.model.model_config.top_k": "sampling is that of grpo_config.yaml",
    "predict.model.model_config.max_decode_length": "that of grpo_config.yaml",
    "predict.processor.tokenizer.chat_template": "prompts are tokenized already",
    "predict.processor.tokenizer.tokenizer_file": PATHS,
    "predict.processor.tokenizer.vocab_file": PATHS,
}
SUPERVISED = {
    "finetune.output_dir": PATHS,
    "finetune.load_checkpoint": PATHS,
    "finetune.train_dataset": "the records have labels, of answers only, and are named as a file",
    "finetune.train_dataset_task": "repeats train_dataset",
    "finetune.seed": "grpoflow's own seed",
    "finetune.load_ckpt_format": "grpoflow writes safetensors",
    "finetune.callbacks": "names and safetensors of checkpoints, from which a run resumes",
    "finetune.use_parallel": ONE_CARD,
    "finetune.parallel.enable_parallel_optimizer": ONE_CARD,
    "finetune.parallel_config.data_parallel": ONE_CARD,
    "finetune.parallel_config.use_seq_parallel": ONE_CARD,
    "finetune.parallel_config.expert_parallel": UNWRITTEN,
    "finetune.parallel_config.context_parallel": UNWRITTEN,
    "finetune.runner_config.gradient_accumulation_steps": "mindformers resets it to 1 on one card",
    "finetune.trainer.model_name": "a name for logs",
    "finetune.only_save_strategy": "the stage strategy needs no run",
    "finetune.context.save_graphs_path": PATHS,
    "finetune.model.model_config": "the model's shape and ids; compared with config.json elsewhere",
    "finetune.processor": "the records are tokenized already",
    "finetune.eval_step_interval": "no evaluation dataset",
    "finetune.eval_epoch_interval": "no evaluation dataset",
    "finetune.eval_dataset": "no evaluation dataset",
    "finetune.eval_dataset_task": "no evaluation dataset",
    "finetune.remote_save_url": "no cloud service",
    "finetune.recompute_config.mp_comm_recompute": "nothing is recomputed, so that it has no effect",
    "finetune.context.memory_optimize_level": "the value of the 7B file; it changes no result",
    **dict.fromkeys(
        (f"finetune.{key}" for key in ("auto_tune", "filepath_prefix", "autotune_per_step")),
        "off in the file",
    ),
    **dict.fromkeys(
        (
            f"finetune.{key}"
            for key in (
                "profile",
                "profile_start_step",
                "profile_stop_step",
                "init_start_profile",
                "profile_communication",
                "profile_memory",
            )
        ),
        "the profiler is off in the file",
    ),
    **dict.fromkeys(
        (f"finetune.{key}" for key in ("layer_scale", "layer_decay", "lr_scale_factor")), "off in the file"
    ),
}
NAMED = "a name within the file"
MINDSPEED_RL = {
    "train.defaults": "Hydra's list: the model's section is written in the file itself",
    "train.model.qwen2_5_7b.norm_epsilon": "Qwen2.5 has 1e-6; MindSpeed-RL computes with 1e-5 otherwise",
    "train.megatron_training.model": NAMED,
    "train.actor_config.model": NAMED,
    "train.megatron_training.ai_framework": "the guide's command line names the MindSpore back end",
    "train.megatron_training.tokenizer_name_or_path": PATHS,
    "train.megatron_training.data_path": PATHS,
    "train.actor_config.load": PATHS,
    "train.actor_config.save": PATHS,
    "train.rl_config.runtime_env_path": PATHS,
    "train.megatron_training.seq_length": "2,048 tokens of prompt and of completion are twice as many",
    "train.rl_config.max_prompt_length": "MindSpeed-RL leaves out prompts of exactly this length",
    "train.megatron_training.seed": UNWRITTEN,
    **dict.fromkeys(
        (f"train.megatron_training.recompute_{key}" for key in ("granularity", "method", "num_layers")),
        "layout.train.recompute of the recipe: sequences twice as long need the memory",
    ),
    "train.rl_config.shuffle_minibatch": "no key of MindSpeed-RL, whose name is shuffle_mini_batch",
    "train.rl_config.shuffle_mini_batch": UNWRITTEN,
    "train.rl_config.use_tensorboard": "grpoflow writes event files itself",
    "train.generate_config.trust_remote_code": "no code of a model directory is run",
}
IN_FLOAT32 = "float32, as transformers computes it"
NO_TOKENIZER = "mindrlhf's own tokenizer reads the prompts"
NETWORK = {
    "eos_token_id": "config.json's",
    "bos_token_id": "config.json's",
    "max_position_embedding": "config.json's",
    "tie_word_embeddings": "config.json's",
    "softmax_compute_type": IN_FLOAT32,
    **dict.fromkeys(
        ("rotary_pct", "rotary_emb_base", "kv_channels"), "of another model: Llama does not read it"
    ),
    **dict.fromkeys(
        ("repetition_penalty", "max_decode_length", "block_size", "num_blocks", "top_k", "top_p"),
        "of generation: training does not read it",
    ),
}
"""Keys of a training's network that differ from the shipped file."""
GENERATION = {
    "max_position_embedding": "the name that mindformers reads",
    "max_position_embeddings": "the name that mindformers reads",
    "tie_word_embeddings": "config.json's",
    "softmax_compute_type": IN_FLOAT32,
    "use_past_shard": "off in the file",
    "auto_map": NO_TOKENIZER,
}
"""Keys of a generation's network that differ from the shipped file."""
WITHOUT_VLLM = {
    **MINDRLHF,
    "grpo_config.generate_config.use_vllm": "README.md has people set it to 0",
    "command.verifier_function": "mindrlhf replaces accuracy_reward by this one for Qwen models",
    **{f"{role}.model.model_config.{key}": reason for role in ROLES for key, reason in NETWORK.items()},
    **{f"predict.model.model_config.{key}": reason for key, reason in GENERATION.items()},
    **{
        f"{role}.model.model_config.seq_length": "mindrlhf replaces it by that of grpo_config.yaml"
        for role in ROLES
    },
    "predict.model.model_config.block_size": "that of grpo_config.yaml",
    "predict.model.model_config.param_init_type": "weights of generation are bfloat16, as the model's",
    **{
        f"predict.model.model_config.{key}": "sampling is that of grpo_config.yaml"
        for key in ("max_decode_length", "repetition_penalty", "temperature", "top_k", "top_p")
    },
    **{
        f"{role}.{section}": "repeats grpo_config.yaml, which counts"
        for role in (*ROLES, "predict")
        for section in ("parallel_config", "recompute_config")
    },
    **{f"{role}.processor": NO_TOKENIZER for role in (*ROLES, "predict")},
}
LEFT = "not replaced: the checkout's default stays"
TRAINING = {**NETWORK, "rotary_dtype": IN_FLOAT32, "max_decode_length": "that of the generation's file"}
ONE_STAGE = {
    **dict.fromkeys(
        (
            f"command.{key}"
            for key in (
                "sft_path_infer",
                "sft_path_train",
                "vocab_path",
                "merges_file_path",
                "mind_dataset_dir",
                "save_ckpt_dir",
                "load_sft_checkpoint_infer",
                "load_sft_checkpoint_train",
                "load_ref_checkpoint",
            )
        ),
        PATHS,
    ),
    "command.pre_num_generations": UNWRITTEN,
    "command.pre_store_data": "rows of one update, with which the script compiles its graph on trial",
    "grpo_config.sink_size": "with 2, updates that do not fill it are dropped silently",
    **dict.fromkeys(
        (
            f"grpo_config.{key}"
            for key in (
                *PPO,
                "align_type",
                "checkpoint_interval",
                "critic_model_path",
                "device_target",
                "enable_alltoall",
                "eta_min",
                "eval_interval",
                "full_batch",
                "gen_experience_kwargs",
                "grpo_epochs",
                "inference_micro_size",
                "is_shared_backbone",
                "lr",
                "mind_dataset_dir",
                "model_name",
                "only_save_strategy",
                "parallel_mode",
                "ppo_epochs",
                "reward_model_path",
                "save_ckpt_dir",
                "save_data_file",
                "sceduler_name",
                "sft_model_path",
                "t_max",
                "total_steps",
                "use_parallel",
                "weight_decay",
            )
        ),
        LEFT,
    ),
    **{f"finetune.model.model_config.{key}": reason for key, reason in TRAINING.items()},
    "finetune.recompute_config.recompute": "the same layers, counted for each pipeline stage",
    **dict.fromkeys(
        (
            f"finetune.{key}"
            for key in (
                "auto_trans_ckpt",
                "auto_tune",
                "autotune_per_step",
                "callbacks",
                "context",
                "do_eval",
                "eval_callbacks",
                "eval_dataset",
                "eval_dataset_task",
                "eval_epoch_interval",
                "eval_step_interval",
                "filepath_prefix",
                "init_start_profile",
                "layer_decay",
                "layer_scale",
                "load_checkpoint",
                "lr_scale_factor",
                "lr_schedule",
                "metric",
                "micro_batch_interleave_num",
                "only_save_strategy",
                "optimizer",
                "output_dir",
                "parallel",
                "processor",
                "profile",
                "profile_communication",
                "profile_memory",
                "profile_start_step",
                "profile_stop_step",
                "remote_save_url",
                "resume_training",
                "runner_config",
                "runner_wrapper",
                "seed",
                "train_dataset",
                "train_dataset_task",
                "trainer",
            )
        ),
        "the script reads only model, parallel_config and recompute_config of this file",
    ),
    **{f"predict.model.model_config.{key}": reason for key, reason in GENERATION.items()},
    "predict.model.model_config.rotary_dtype": IN_FLOAT32,
    "predict.model.model_config.batch_size": "as many as chunk_size",
    "predict.model.model_config.min_decode_length": UNWRITTEN,
    "predict.context.save_graphs_path": "no graphs are saved",
    "predict.parallel.parallel_optimizer_config": "the parallel optimizer is off",
    "predict.parallel_config.use_seq_parallel": UNWRITTEN,
    **{
        f"{role}.parallel_config.{key}": reason
        for role in ("finetune", "predict")
        for key, reason in (
            ("context_parallel", UNWRITTEN),
            ("expert_parallel", UNWRITTEN),
            ("gradient_aggregation_group", "mindformers' default"),
        )
    },
    **dict.fromkeys(
        (
            f"predict.{key}"
            for key in (
                "auto_trans_ckpt",
                "load_checkpoint",
                "micro_batch_interleave_num",
                "only_save_strategy",
                "output_dir",
                "processor",
                "resume_training",
                "runner_config",
                "src_strategy_path_or_dir",
                "trainer",
            )
        ),
        "the script reads only model, parallel_config, context and parallel of this file",
    ),
}
GUIDES = {
    "mindrlhf": Guide(
        checkout="mindrlhf-e8a8fc1",
        recipe=("experiment=mindrlhf_7b_tutorial", "model.path=/models/qwen"),
        stage="grpo",
        files={"grpo_config": "examples/grpo/qwen_grpo_tutorial/grpo_config.yaml"},
        command="examples/grpo/qwen_grpo_tutorial/run_grpo_vllm.sh",
        differences=MINDRLHF,
    ),
    "mindrlhf 0cd087455": Guide(
        checkout="mindrlhf-0cd087455",
        recipe=("experiment=mindrlhf_7b_tutorial", "model.path=/models/qwen", "engine.contract=0cd087455"),
        stage="grpo",
        files={"grpo_config": "examples/grpo/qwen_grpo_tutorial/grpo_config.yaml"},
        command="examples/grpo/qwen_grpo_tutorial/run_grpo_vllm.sh",
        differences=MINDRLHF_OLDER,
    ),
    "mindrlhf without vLLM": Guide(
        checkout="mindrlhf-e8a8fc1",
        recipe=("experiment=mindrlhf_7b_tutorial", "model.path=/models/qwen", "engine.use_vllm=0"),
        stage="grpo",
        files={
            "grpo_config": "examples/grpo/qwen_grpo_tutorial/grpo_config.yaml",
            "finetune": "model_configs/qwen_grpo/qwen2_5_7b/finetune_qwen2_5_7b.yaml",
            "reference": "model_configs/qwen_grpo/qwen2_5_7b/finetune_qwen2_5_7b.yaml",
            "predict": "model_configs/qwen_grpo/qwen2_5_7b/predict_qwen2_5_7b_instruct.yaml",
        },
        command="examples/grpo/qwen_grpo_tutorial/run_grpo.sh",
        differences=WITHOUT_VLLM,
    ),
    "mindrlhf's single script": Guide(
        checkout="mindrlhf-2d0e84d",
        recipe=(
            "experiment=mindrlhf_one_stage_7b",
            "model.path=/models/qwen",
            "engine.epochs=10",
            "engine.chunk_size=2",
            "train.prompts_per_step=16",
            "train.ref_model_sync_steps=50",
            "layout.train.use_seq_parallel=true",
            "layout.train.micro_batch_num=4",
            "layout.train.recompute=true",
            "tokenize.max_prompt_length=6144",
            "rollout.max_tokens=2048",
            "rollout.temperature=1.2",
            "rollout.top_k=50",
            "engine.save_data_file=/path/to/grpo_data/grpo_1024.mindrecord",
        ),
        stage="grpo",
        files={
            "grpo_config": "mindrlhf/configs/grpo_configs.py",
            "finetune": "model_configs/qwen_grpo/finetune_qwen2_5_7b.yaml",
            "predict": "model_configs/qwen_grpo/predict_qwen2_5_7b_instruct.yaml",
        },
        command="run_grpo.sh",
        program="grpo_one_stage.py",
        differences=ONE_STAGE,
    ),
    "DeepSeek-V3": Guide(
        checkout="mindrlhf-e8a8fc1",
        recipe=(
            "experiment=mindrlhf_deepseek_v3",
            "model.path=/models/deepseek",
            "engine.epochs=10",
            "train.checkpoint_every=5",
            "train.keep_checkpoints=5",
            "engine.seq_length=8192",
            "engine.max_model_len=4096",
            "tokenize.max_prompt_length=2048",
            "rollout.max_tokens=1024",
            "rollout.min_tokens=2",
            "rollout.temperature=0.3",
        ),
        stage="grpo",
        files={
            "grpo_config": "examples/grpo/deepseekv3_grpo_tutorial/grpo_config.yaml",
            "finetune": "model_configs/deepseek_v3_config/finetune_deepseek3_671b.yaml",
            "reference": "model_configs/deepseek_v3_config/ref_deepseek3_671b.yaml",
            "predict": "model_configs/deepseek_v3_config/predict_deepseek3_671b.yaml",
        },
        command="examples/grpo/deepseekv3_grpo_tutorial/run_grpo.sh",
        differences=DEEPSEEK,
    ),
    "one-card fine-tuning": Guide(
        checkout="mindformers-051d65f",
        recipe=("experiment=sft_qwen2_5_0_5b", "model.path=/models/qwen", "tokenize.sft_length=8192"),
        stage="sft",
        files={"finetune": "research/qwen2_5/finetune_qwen2_5_0_5b_8k.yaml"},
        command="",
        differences=SUPERVISED,
    ),
    "MindSpeed-RL": Guide(
        checkout="mindspeed-rl-c21465a",
        recipe=("experiment=mindspeed_rl_7b", "model.path=/models/qwen"),
        stage="grpo",
        files={"train": "configs/grpo_qwen25_7b_A3.yaml"},
        command="",
        differences=MINDSPEED_RL,
        included=("configs/model/qwen25_7b.yaml", "qwen25_7b", "train.model.qwen2_5_7b"),
    ),
}


def same(ours: Any, theirs: Any) -> bool:
    """Return True if two values mean the same: numbers by value, a text of a number as the number."""
    if isinstance(ours, float) or isinstance(theirs, float):
        try:
            return abs(float(ours) - float(theirs)) <= 1e-12 * max(1.0, abs(float(theirs)))
        except (TypeError, ValueError):
            return False
    return bool(ours == theirs)
