"""Replacement of vLLM 0.8 for mindrlhf: LLM and SamplingParams on mindformers' network.

It has no paged attention and no cache, so every token costs a forward pass. Every other completion of a
prompt with a known answer (script.py) is that answer.

Source: mindrlhf e8a8fc1, worker/infer_worker.py:150-238 and third_party/vllm.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from .hooks import Provided
from .network import Qwen2ForCausalLM
from .script import FILE, Script

ROW_MULTIPLE = 64
"""Rows are padded to a multiple of this, so that few graphs are compiled."""


class LLM:
    """mindrlhf adds init_cache_engine, free_cache_engine and pre_process_inputs to it."""

    def __init__(self, model: str, max_model_len: int, seed: int = 0, **ignored: Any) -> None:
        """Load a Hugging Face directory; `seed` is the data-parallel rank."""
        self.model = Qwen2ForCausalLM(Path(model), max_model_len)
        self.random = np.random.default_rng(seed)
        self.script = Script(Path(os.environ[FILE]), seed)
        worker = SimpleNamespace(model_runner=GPUModelRunner(self.model))
        self.llm_engine = SimpleNamespace(
            model_executor=SimpleNamespace(driver_worker=SimpleNamespace(worker=worker))
        )

    def generate(
        self,
        prompts: None,
        sampling_params: SimpleNamespace,
        prompt_token_ids: list[list[int]],
        use_tqdm: bool = True,
    ) -> list[SimpleNamespace]:
        """Return one completion per prompt, with the token that ends it, as in vLLM."""
        limit = sampling_params.max_tokens
        completions = (
            self.script.answer(prompt) or self.sample(prompt, sampling_params) for prompt in prompt_token_ids
        )
        return [SimpleNamespace(outputs=[SimpleNamespace(token_ids=ids[:limit])]) for ids in completions]

    def sample(self, prompt: list[int], params: SimpleNamespace) -> list[int]:
        """Sample a completion by temperature; a random model needs no top_k and top_p."""
        start, end = len(prompt), len(prompt) + params.max_tokens
        tokens = np.zeros((1, -(-end // ROW_MULTIPLE) * ROW_MULTIPLE), np.int32)
        tokens[0, :start] = prompt
        for position in range(start, end):
            logits = self.model.logits(tokens, np.array([position - 1]))[0].astype(np.float64)
            if position < start + params.min_tokens:
                logits[params.stop_token_ids] = -np.inf
            if params.temperature > 0:
                logits = logits / params.temperature + self.random.gumbel(size=logits.shape)
            tokens[0, position] = logits.argmax()
            if tokens[0, position] in params.stop_token_ids:
                break
        completion: list[int] = tokens[0, start : position + 1].tolist()
        return completion


class GPUModelRunner:
    """Holds the model; mindrlhf wraps initialize_kv_cache (vllm_v_general/__init__.py)."""

    def __init__(self, model: Qwen2ForCausalLM) -> None:
        self.model = model
        self.kv_caches: list[Any] = []
        self.kv_cache_config: Any = None

    def initialize_kv_cache(self, config: Any) -> None:
        """Do nothing: there is no key-value cache."""
        self.kv_cache_config = config


platform = SimpleNamespace(is_cuda_alike=lambda: False, check_and_update_config=None)
NAMES: dict[str, Any] = {
    "LLM": LLM,
    "SamplingParams": SimpleNamespace,
    "GPUModelRunner": GPUModelRunner,
    "Qwen2ForCausalLM": Qwen2ForCausalLM,
    "current_platform": platform,
    "get_tensor_model_parallel_world_size": lambda: 1,
    # no process groups: no tensor is sharded here
    "init_distributed_environment": lambda *arguments: None,
    "initialize_model_parallel": lambda *arguments: None,
}
"""Names in modules of vLLM that are used; all others are empty classes (hooks.Provided)."""
# vllm-mindspore has msadapter's torch and sets these variables
if importlib.util.find_spec("torch") is None:
    sys.meta_path.append(Provided("torch"))
os.environ.setdefault("RANK", os.environ.get("MS_NODE_ID", "0"))
os.environ.setdefault("WORLD_SIZE", os.environ.get("MS_WORKER_NUM", "1"))
