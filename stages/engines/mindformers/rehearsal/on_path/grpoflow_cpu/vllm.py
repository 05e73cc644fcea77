"""Replacement of vLLM 0.8 for mindrlhf: LLM and SamplingParams on mindformers' network.

It has no paged attention and no cache, so every token costs a forward pass. Every other completion of a
prompt with a known answer (script.py) is that answer.

Source: mindrlhf e8a8fc1, worker/infer_worker.py:150-238 and third_party/vllm.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mindspore as ms
import numpy as np

from .cells import LastLogits
from .hooks import Provided
from .script import FILE, Script

Array = np.ndarray[Any, Any]

ROW_MULTIPLE = 64
"""Rows are padded to a multiple of this, so that few graphs are compiled."""


class LLM:
    """mindrlhf adds init_cache_engine, free_cache_engine and pre_process_inputs to it."""

    def __init__(self, model: str, max_model_len: int, seed: int = 0, **ignored: Any) -> None:
        """Load a Hugging Face directory; `seed` is the data-parallel rank."""
        self.model = open_model(Path(model), max_model_len)
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
        self.model.refresh()
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

    def __init__(self, model: Any) -> None:
        self.model = model
        self.kv_caches: list[Any] = []
        self.kv_cache_config: Any = None

    def initialize_kv_cache(self, config: Any) -> None:
        """Do nothing: there is no key-value cache."""
        self.kv_cache_config = config


class Qwen2ForCausalLM:
    """Model whose `network` mindrlhf takes and into which it copies the policy's weights."""

    def __init__(self, settings: Any, seq_length: int, weights: Iterable[tuple[str, Any]]) -> None:
        """Load Hugging Face tensors; `settings`: the content of predict.yaml."""
        from mindformers import LlamaConfig, LlamaForCausalLM

        model = settings.model.model_config
        model.parallel_config, model.seq_length = settings.parallel_config, seq_length
        model.use_past, model.is_dynamic, model.use_flash_attention = False, True, True
        self.network = LlamaForCausalLM(LlamaConfig(**model))
        self.network.set_train(False)
        self.kv_caches: list[Any] = []
        self.step: LastLogits | None = None
        self.load_weights(weights)

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Load weights; mindrlhf replaces this method by an empty one to resume (infer_worker.py:167)."""
        parameters = {self.network.convert_name(name): ms.Parameter(value) for name, value in weights}
        missing, _ = ms.load_param_into_net(self.network, parameters)
        if any("lm_head" not in name for name in missing):
            raise ValueError(f"the model directory lacks {missing}")

    def refresh(self) -> None:
        """Do nothing: mindrlhf copies the weights into the network that computes."""

    def logits(self, tokens: Array, last: Array) -> Array:
        """Return logits [rows, vocabulary] of one position of each row [rows, positions]."""
        if self.step is None:
            self.step = LastLogits(self.network)
            self.step.set_train(False)
        result: Array = self.step(ms.Tensor(tokens), ms.Tensor(last.astype(np.int32))).asnumpy()
        return result


def open_model(directory: Path, seq_length: int) -> Any:
    """Return the model of a Hugging Face directory, by the network that predict.yaml names."""
    from mindformers import MindFormerConfig
    from mindformers.core.parallel_config import build_parallel_config

    settings = MindFormerConfig(os.environ["MINDFORMERS_MODEL_CONFIG"])
    build_parallel_config(settings)
    if settings.model.arch.type != "DeepseekV3ForCausalLM":
        return Qwen2ForCausalLM(settings, seq_length, read(directory))
    from .deepseek import DeepseekV3ForCausalLM

    return DeepseekV3ForCausalLM(settings, seq_length, read(directory))


def read(directory: Path) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a Hugging Face directory as float32."""
    for path in sorted(directory.glob("*.safetensors")):
        for name, value in ms.load_checkpoint(str(path), format="safetensors").items():
            yield name, ms.Tensor(value).astype(ms.float32)


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
