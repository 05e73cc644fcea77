"""Arguments of vLLM, and the bytes that it needs."""

from __future__ import annotations

from typing import Any

from stages.grpo.config import EvaluateConfig, RolloutConfig
from stages.models.config import ModelConfig
from stages.models.families import family_of

RENDERED = {
    "model": "=evaluate names the weights of both models",
    "tokenizer": "=vLLM gets the token ids that tokenize has written",
    "skip_tokenizer_init": "=vLLM gets the token ids that tokenize has written",
    "generation_config": "=it would replace the run's end ids and sampling rules",
    "seed": "=each completion has a seed of its own",
    "dtype": "evaluate.dtype",
    "tensor_parallel_size": "evaluate.layout.tensor_parallel",
    "max_model_len": "evaluate.max_model_len",
    "max_num_seqs": "evaluate.batch_prompts",
    "gpu_memory_utilization": "evaluate.gpu_memory_utilization",
}
"""Arguments of vllm.LLM that evaluate.upstream must not set (stages/engines/upstream_keys.py)."""
CARD_SHARE = 0.9
"""Share of a card's memory that vLLM takes by default."""


def of_model(config: EvaluateConfig, longest: int) -> dict[str, Any]:
    """Return the arguments of vllm.LLM apart from model and memory; `longest`: tokens of a sequence.

    Without a dtype, the program chooses it by its device (programs/answer.py).
    """
    return {
        "skip_tokenizer_init": True,
        "generation_config": "vllm",
        "seed": 0,
        **({"dtype": config.dtype} if config.dtype is not None else {}),
        "tensor_parallel_size": config.layout.tensor_parallel,
        "max_model_len": config.max_model_len or longest,
        "max_num_seqs": config.batch_prompts,
        **config.upstream,
    }


def of_sampling(rollout: RolloutConfig, ends: tuple[int, ...]) -> dict[str, Any]:
    """Return the arguments of SamplingParams that greedy and sampled completions share.

    `ends` replace the end ids of the model's files, which may be others.
    """
    return {
        "max_tokens": rollout.max_tokens,
        "min_tokens": rollout.min_tokens,
        "repetition_penalty": rollout.repetition_penalty,
        "stop_token_ids": list(ends),
        "ignore_eos": True,
        "detokenize": False,
    }


def of_drawing(rollout: RolloutConfig) -> dict[str, Any]:
    """Return the arguments of SamplingParams that draw tokens as a rollout does."""
    return {
        "temperature": rollout.temperature,
        "top_k": 0 if rollout.top_k is None else rollout.top_k,
        "top_p": 1.0 if rollout.top_p is None else rollout.top_p,
        "min_p": rollout.min_p or 0.0,
    }


def cache_bytes(model: ModelConfig, completions: int, longest: int) -> int:
    """Return the bytes of the keys and values of so many completions in float32, as on a CPU."""
    heads = family_of(model).heads(model)
    elements = heads.cached if heads.cut else heads.computed  # a CPU caches no latent (programs/opening.py)
    return completions * longest * model.num_hidden_layers * elements * 4
