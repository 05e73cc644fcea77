"""Sections of mindformers' YAML about a model and its layout, for every program that uses mindformers.

Source: mindformers 051d65f; mindrlhf e8a8fc1, model_configs.
"""

from typing import Any

from stages.base.layout import RoleLayout
from stages.engines.template import fill
from stages.grpo.config import RolloutConfig
from stages.models.config import ModelConfig
from stages.models.families import network_of
from stages.models.family import Role
from stages.models.layouts import stages_of_layers

Values = dict[str, Any]


def parallel_config(layout: RoleLayout) -> Values:
    """Return a role's parallel_config; mindrlhf replaces that of the model YAML by it."""
    return {
        "data_parallel": layout.data_parallel,
        "model_parallel": layout.model_parallel,
        "pipeline_stage": layout.pipeline_stage,
        "expert_parallel": layout.expert_parallel,
        "use_seq_parallel": layout.use_seq_parallel,
        "micro_batch_num": layout.micro_batch_num,
        "vocab_emb_dp": layout.vocab_emb_dp,
        "context_parallel": layout.context_parallel,
    }


def sections(model: ModelConfig, layout: RoleLayout, seq_length: int) -> dict[str, Values]:
    """Return the keys of the model's network by section, see Network.keys."""
    return fill(network_of(model).keys, Role(model, layout, seq_length, model.token_ids), None, {})


def training(model: ModelConfig, layout: RoleLayout, seq_length: int) -> Values:
    """Return model_config of a role that is trained, or that scores as in training."""
    keys = sections(model, layout, seq_length)
    return keys["shape"] | keys["training"]


def predicting(model: ModelConfig, layout: RoleLayout, seq_length: int, sampled: Values) -> Values:
    """Return model_config of generation; `sampled` is the result of `sampling`."""
    keys = sections(model, layout, seq_length)
    return keys["shape"] | keys["predicting"] | sampled


def sampling(rollout: RolloutConfig, block_size: int, num_blocks: int) -> Values:
    """Return mindformers' generation settings."""
    return {
        "block_size": block_size,
        "num_blocks": num_blocks,
        "max_decode_length": rollout.max_tokens,
        "min_decode_length": rollout.min_tokens,
        "repetition_penalty": rollout.repetition_penalty,
        "temperature": rollout.temperature,
        "top_k": rollout.top_k or 0,
        "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
        "do_sample": True,
    }


def recompute_config(model: ModelConfig, layout: RoleLayout) -> Values:
    """Return the layers whose activations are recomputed: a number per pipeline stage, or true or false."""
    stages = stages_of_layers(model, layout)
    per_stage = [stages.count(stage) for stage in range(layout.pipeline_stage)]
    several = layout.pipeline_stage > 1

    def layers(enabled: bool) -> bool | list[int]:
        return per_stage if enabled and several else enabled

    return {
        "recompute": layers(layout.recompute),
        "select_recompute": layers(layout.select_recompute),
        "parallel_optimizer_comm_recompute": False,
        "mp_comm_recompute": True,
        "recompute_slice_activation": False,
    }
