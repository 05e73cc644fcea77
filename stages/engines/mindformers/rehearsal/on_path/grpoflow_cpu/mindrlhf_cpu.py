"""Changes of mindrlhf: generation without vLLM."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from .script import FILE, Script


def generate_without_cache(module: Any) -> None:
    """Let the training network generate with engine.use_vllm=0: paged attention has no CPU kernel."""

    def without_cache(config: Any) -> Any:
        config.use_past = config.use_eod_attn_mask_compression = False
        config.is_dynamic = config.use_flash_attention = True  # masks of any length
        network = module.LlamaForCausalLM(config)
        answer_some(network, config.pad_token_id)
        return network

    module.ParallelQwenForCausalLM = without_cache


def answer_some(network: Any, pad: int) -> None:
    """Replace some completions that a network generates by the known answers of their prompts."""
    original = network.generate
    script: Script | None = None

    def generate(prompts: Any, max_new_tokens: int, seed: int, **settings: Any) -> list[Any]:
        nonlocal script
        script = script or Script(Path(os.environ[FILE]), seed)  # the seed is the number of the replica
        rows = list(original(prompts, max_new_tokens=max_new_tokens, seed=seed, **settings))
        for row, padded in enumerate(prompts.tolist()):
            prompt = [token for token in padded if token != pad]
            known = script.answer(prompt)
            if known is not None:
                rows[row] = np.array([*prompt, *known[:max_new_tokens]])
        return rows

    network.generate = generate


CHANGES = {"mindrlhf.models.base_model": generate_without_cache}
