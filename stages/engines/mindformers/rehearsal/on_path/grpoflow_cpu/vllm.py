"""Replacement of vLLM 0.8 for mindrlhf: LLM and SamplingParams on mindformers' network.

It has no paged attention and no cache, so every token costs a forward pass. Every other completion of a
prompt with a known answer (script.py) is that answer.

Source: mindrlhf e8a8fc1, worker/infer_worker.py:150-238 and third_party/vllm.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from .hooks import VLLM_VERSION, Provided
from .network import Qwen2ForCausalLM
from .script import FILE, Script

ROW_MULTIPLE = 64
"""Rows are padded to a multiple of this, so that few graphs are compiled."""


@dataclass
class SamplingParams:
    """Arguments that infer_worker.py gives."""

    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = -1
    stop_token_ids: list[int] = field(default_factory=list)
    max_tokens: int = 16
    min_tokens: int = 0
    detokenize: bool = True


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
        sampling_params: SamplingParams,
        prompt_token_ids: list[list[int]],
        use_tqdm: bool = True,
    ) -> list[SimpleNamespace]:
        """Return one completion per prompt, with the token that ends it, as in vLLM."""
        made = [self.script.answer(prompt) for prompt in prompt_token_ids]
        open_rows = [row for row, completion in enumerate(made) if completion is None]
        sampled = self.sample([prompt_token_ids[row] for row in open_rows], sampling_params)
        for row, completion in zip(open_rows, sampled):  # noqa: B905 (strict= came with Python 3.10)
            made[row] = completion
        limit = sampling_params.max_tokens
        return [
            SimpleNamespace(outputs=[SimpleNamespace(token_ids=(completion or [])[:limit])])
            for completion in made
        ]

    def sample(self, prompts: list[list[int]], params: SamplingParams) -> list[list[int]]:
        """Sample completions from the network."""
        if not prompts:
            return []
        lengths = np.array([len(prompt) for prompt in prompts])
        longest = int(lengths.max()) + params.max_tokens
        tokens = np.zeros((len(prompts), -(-longest // ROW_MULTIPLE) * ROW_MULTIPLE), np.int32)
        for row, prompt in enumerate(prompts):
            tokens[row, : len(prompt)] = prompt
        made: list[list[int]] = [[] for _ in prompts]
        unfinished = set(range(len(prompts)))
        for step in range(params.max_tokens):
            logits = self.model.logits(tokens, np.minimum(lengths + step, tokens.shape[1]) - 1)
            for row in sorted(unfinished):
                token = self.choose(logits[row].astype(np.float64), params, made[row])
                made[row].append(token)
                tokens[row, lengths[row] + step] = token
                if token in params.stop_token_ids:
                    unfinished.remove(row)
            if not unfinished:
                break
        return made

    def choose(self, logits: np.ndarray[Any, Any], params: SamplingParams, made: list[int]) -> int:
        """Choose one token by temperature, top_k and top_p."""
        if len(made) < params.min_tokens:
            logits[params.stop_token_ids] = -np.inf
        if params.temperature == 0:
            return int(logits.argmax())
        order = np.argsort(-logits)[: params.top_k if params.top_k > 0 else None]
        chances = np.exp((logits[order] - logits[order[0]]) / params.temperature)
        before = np.cumsum(chances / chances.sum()) - chances / chances.sum()
        chances = np.where(before < params.top_p, chances, 0.0)
        return int(self.random.choice(order, p=chances / chances.sum()))


class GPUModelRunner:
    """Holds the model; mindrlhf wraps initialize_kv_cache (vllm_v_general/__init__.py)."""

    def __init__(self, model: Qwen2ForCausalLM) -> None:
        self.model = model
        self.kv_caches: list[Any] = []
        self.kv_cache_config: Any = None

    def initialize_kv_cache(self, config: Any) -> None:
        """Do nothing: there is no key-value cache."""
        self.kv_cache_config = config


class Unused:
    """Name that mindrlhf imports for annotations or for callbacks of a card's vLLM."""


def nothing(*arguments: Any, **settings: Any) -> None:
    """Create no process groups: no tensor is sharded here."""


platform = SimpleNamespace(is_cuda_alike=lambda: False, check_and_update_config=None)
MF_MODELS = "vllm_mindspore.model_executor.models.mf_models"
MODULES: dict[str, dict[str, Any]] = {
    "vllm": {"LLM": LLM, "SamplingParams": SamplingParams, "__version__": VLLM_VERSION},
    "vllm.config": {"VllmConfig": Unused, "current_platform": platform},
    "vllm.platforms": {"current_platform": platform},
    "vllm.utils": {"current_platform": platform},
    "vllm.attention": {"AttentionMetadata": Unused},
    "vllm.sequence": {"IntermediateTensors": Unused},
    "vllm.model_executor": {},
    "vllm.model_executor.layers": {},
    "vllm.model_executor.layers.sampler": {"SamplerOutput": Unused},
    "vllm.model_executor.sampling_metadata": {"SamplingMetadata": Unused},
    "vllm.distributed": {"get_tensor_model_parallel_world_size": lambda: 1},
    "vllm.distributed.parallel_state": {
        "GroupCoordinator": Unused,
        "init_model_parallel_group": nothing,
        "init_distributed_environment": nothing,
        "initialize_model_parallel": nothing,
    },
    "vllm.v1": {},
    "vllm.v1.worker": {},
    "vllm.v1.worker.gpu_model_runner": {"GPUModelRunner": GPUModelRunner},
    "vllm_mindspore": {},
    "vllm_mindspore.model_executor": {},
    "vllm_mindspore.model_executor.models": {},
    "vllm_mindspore.model_executor.models.attention_mask": {"LowerTriangularMask": Unused},
    MF_MODELS: {},
    f"{MF_MODELS}.mf_model_base": {"MfModelBase": Unused},
    f"{MF_MODELS}.qwen2": {"Qwen2ForCausalLM": Qwen2ForCausalLM},
    "torch": {"cuda": SimpleNamespace(set_device=None)},
    "torch.distributed": {"Backend": str},
}
# vllm-mindspore has msadapter's torch and sets these variables
if importlib.util.find_spec("torch") is None:
    sys.meta_path.append(Provided(__name__, "torch"))
os.environ.setdefault("RANK", os.environ.get("MS_NODE_ID", "0"))
os.environ.setdefault("WORLD_SIZE", os.environ.get("MS_WORKER_NUM", "1"))
