"""Changes of mindrlhf: generation without vLLM, and tiny vocabularies."""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from .script import FILE, Script

QWEN_ENDOFTEXT = 151643
CONSTANTS = {"ENDOFTEXTID": "<|endoftext|>", "IMSTARTID": "<|im_start|>", "IMENDID": "<|im_end|>"}


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


def ids_of_tiny_vocabulary(module: Any) -> None:
    """Read special ids from tokenizer_config.json unless the vocabulary is Qwen's."""
    tokenizer = getattr(module, "Qwen2_5Tokenizer", None) or module.Qwen2Tokenizer
    original = tokenizer.__init__

    @functools.wraps(original)
    def init(self: Any, vocab_file: str, *arguments: Any, **settings: Any) -> None:
        ids = added_tokens(Path(vocab_file).parent)
        if ids.get("<|endoftext|>", QWEN_ENDOFTEXT) != QWEN_ENDOFTEXT:
            for constant, token in CONSTANTS.items():
                setattr(module, constant, ids.get(token, getattr(module, constant)))
        original(self, vocab_file, *arguments, **settings)

    tokenizer.__init__ = init


def added_tokens(directory: Path) -> dict[str, int]:
    """Return the id of each token that tokenizer_config.json adds to the vocabulary."""
    file = directory / "tokenizer_config.json"
    added = json.loads(file.read_text(encoding="utf-8")).get("added_tokens_decoder", {})
    return {entry["content"]: int(number) for number, entry in added.items()}


CHANGES = {
    "mindrlhf.models.base_model": generate_without_cache,
    "mindrlhf.models.qwen2_5.qwen2_5_tokenizer": ids_of_tiny_vocabulary,
    "mindrlhf.models.qwen2.qwen2_tokenizer": ids_of_tiny_vocabulary,
}
