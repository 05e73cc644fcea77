"""A very small model with random weights, for tests of the trainer."""

from dataclasses import asdict

import numpy as np

from stages.base.reader import read
from stages.grpo.config import RolloutConfig, TrainConfig
from stages.models.config import ModelConfig
from stages.models.families import weights_of
from tests.stages.weights.checkpoints import tiny

SEED = 7


def model_config(**changes):
    values = {
        "name": "small", "variant": "base", "hidden_size": 32, "num_attention_heads": 4,
        "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 96, "max_position_embeddings": 128,
        "rope_theta": 10000.0, "initializer_range": 0.3, "eos_token_id": (1,), "pad_token_id": 0,
    }  # fmt: skip
    return read(ModelConfig, {**asdict(tiny().model), **values, **changes})


def rollout_config(**changes):
    values = {"num_generations": 4, "max_tokens": 10}
    return read(RolloutConfig, {**asdict(tiny().rollout), **values, **changes})


def train_config(**changes):
    values = {
        "steps": 4, "learning_rate": 1e-3, "schedule": "constant", "warmup_steps": 0, "final_share": 1.0,
        "adam_beta2": 0.95, "prompts_per_step": 2, "num_iterations": 2, "epsilon_high": 0.3, "beta": 0.1,
    }  # fmt: skip
    return read(TrainConfig, {**asdict(tiny().train), **values, **changes})


def weights(model, seed=SEED):
    """Full tensors by the checkpoint's names: everything random, norms and biases too."""
    random = np.random.default_rng(seed)
    # golden values rest on this order: what is no layer's first, and of a layer the norms last
    listed = sorted(
        weights_of(model),
        key=lambda weight: (-1, False) if weight.layer is None else (weight.layer, "norm" in weight.name),
    )
    return {
        weight.name: (
            random.normal(size=weight.shape) * model.initializer_range + ("norm" in weight.name)
        ).astype(np.float32)
        for weight in listed
    }


def hf_names(model):
    """transformers' name of each of a checkpoint's tensors."""
    return {weight.name: weight.parts[0] for weight in weights_of(model)}


def prompts(model, P, S, seed=SEED):
    """ids [P, S] padded with 0 on the right, and lengths [P] from 1 to S."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, S + 1, P).astype(np.int32)
    lengths[0], lengths[-1] = S, 1
    ids = random.integers(2, model.vocab_size, (P, S)).astype(np.int32)
    ids[np.arange(S) >= lengths[:, None]] = 0
    return ids, lengths
