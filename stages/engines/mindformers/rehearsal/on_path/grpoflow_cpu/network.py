"""Model of vLLM's replacement: mindformers' training network without a cache."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn, ops

Array = np.ndarray[Any, Any]


class LastLogits(nn.Cell):  # type: ignore[misc]
    """Logits of one position per row: [rows, positions, vocabulary] would not fit into memory."""

    def __init__(self, network: Any) -> None:
        super().__init__(auto_prefix=False)
        self.backbone, self.head = network.model, network.lm_head

    def construct(self, tokens: Any, last: Any) -> Any:
        """Return logits [rows, vocabulary] at `last` [rows] of tokens [rows, positions] int32."""
        states = self.backbone(tokens)
        rows = ops.arange(0, tokens.shape[0], 1)
        return self.head(states[rows, last]).astype(ms.float32)


class Qwen2ForCausalLM:
    """Model whose `network` mindrlhf takes and into which it copies the policy's weights."""

    def __init__(self, directory: Path, seq_length: int) -> None:
        from mindformers import LlamaConfig, LlamaForCausalLM, MindFormerConfig
        from mindformers.core.parallel_config import build_parallel_config

        config = MindFormerConfig(os.environ["MINDFORMERS_MODEL_CONFIG"])
        build_parallel_config(config)
        model = config.model.model_config
        model.parallel_config, model.seq_length = config.parallel_config, seq_length
        model.use_past, model.is_dynamic, model.use_flash_attention = False, True, True
        self.network = LlamaForCausalLM(LlamaConfig(**model))
        self.network.set_train(False)
        self.kv_caches: list[Any] = []
        self.step: LastLogits | None = None
        self.load_weights(read(directory))

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """Load weights; mindrlhf replaces this method by an empty one to resume (infer_worker.py:167)."""
        parameters = {self.network.convert_name(name): ms.Parameter(value) for name, value in weights}
        missing, _ = ms.load_param_into_net(self.network, parameters)
        if any("lm_head" not in name for name in missing):
            raise ValueError(f"the model directory lacks {missing}")

    def logits(self, tokens: Array, last: Array) -> Array:
        """Return logits [rows, vocabulary] of one position of each row [rows, positions]."""
        if self.step is None:
            self.step = LastLogits(self.network)
            self.step.set_train(False)
        result: Array = self.step(ms.Tensor(tokens), ms.Tensor(last.astype(np.int32))).asnumpy()
        return result


def read(directory: Path) -> Iterator[tuple[str, Any]]:
    """Yield the tensors of a Hugging Face directory as float32."""
    for path in sorted(directory.glob("*.safetensors")):
        for name, value in ms.load_checkpoint(str(path), format="safetensors").items():
            yield name, ms.Tensor(value).astype(ms.float32)
