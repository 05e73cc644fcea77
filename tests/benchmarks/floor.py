"""The floor under a step's time: its matrix products alone, each in one BLAS call (numpy's, float32).

Products with weights in the rollout, in the reference's pass and in the update; not attention's. numpy's
OpenBLAS takes kernels without AVX for a processor that is newer than itself: it is told which to take, in a
process of its own.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from stages.models.config import ModelConfig

RUNS = 3
KERNELS = {"avx512f": "SkylakeX", "avx2": "Haswell"}
"""OpenBLAS's name of the best kernels for processors with this feature, the better ones first."""


def floor_s(
    model: ModelConfig, prompts: int, generations: int, prompt_tokens: int, tokens: int, micro_batches: int
) -> float:
    """Seconds of one step with a reference on one worker; completions are `tokens` long, prompts padded."""
    completions = prompts * generations
    positions = prompts * prompt_tokens + completions * (tokens - 1)
    batch = positions // micro_batches, completions * tokens // micro_batches
    passes = 2 * forward_s(model, *batch) + backward_s(model, *batch)
    prefill = forward_s(model, prompts * prompt_tokens, prompts)
    return micro_batches * passes + prefill + (tokens - 1) * forward_s(model, completions, completions)


def layer_weights(model: ModelConfig) -> list[tuple[int, int]]:
    """[out, in] of a layer's products: query with key and value, output, gate, up, down."""
    H, F, D = model.hidden_size, model.intermediate_size, model.head_size
    Q, K = model.num_attention_heads, model.num_key_value_heads
    return [((Q + 2 * K) * D, H), (H, Q * D), (F, H), (F, H), (H, F)]


def forward_s(model: ModelConfig, rows: int, head_rows: int) -> float:
    """Seconds of the products of a forward pass."""
    layer = sum(product_s(rows, inner, outer) for outer, inner in layer_weights(model))
    return model.num_hidden_layers * layer + product_s(head_rows, model.hidden_size, model.vocab_size)


def backward_s(model: ModelConfig, rows: int, head_rows: int) -> float:
    """Seconds of those of a backward pass: each forward product's two gradients."""

    def gradients(rows: int, outer: int, inner: int) -> float:
        return product_s(rows, outer, inner) + product_s(outer, rows, inner)

    layer = sum(gradients(rows, outer, inner) for outer, inner in layer_weights(model))
    return model.num_hidden_layers * layer + gradients(head_rows, model.vocab_size, model.hidden_size)


@functools.cache
def product_s(rows: int, inner: int, columns: int) -> float:
    """The least seconds, of a few runs, of [rows, inner] times [inner, columns], with the better kernels."""
    line = [sys.executable, "-m", __name__, json.dumps([rows, inner, columns])]
    times = []
    for kernels in (None, best_kernels()):
        env = {**os.environ, **({"OPENBLAS_CORETYPE": kernels} if kernels else {})}
        done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=True, env=env)
        times.append(float(done.stdout))
    return min(times)


def best_kernels() -> str | None:
    """OpenBLAS's kernels for what this processor can do; None: its own choice."""
    described = Path("/proc/cpuinfo")
    features = described.read_text(encoding="ascii").split() if described.exists() else []
    return next((name for feature, name in KERNELS.items() if feature in features), None)


def measure_s(rows: int, inner: int, columns: int) -> float:
    """`product_s` in this process, with the kernels that numpy has chosen."""
    left, right = np.ones((rows, inner), np.float32), np.ones((inner, columns), np.float32)
    times = []
    for _ in range(RUNS):
        began = time.perf_counter()
        left @ right
        times.append(time.perf_counter() - began)
    return min(times)


if __name__ == "__main__":
    print(measure_s(*json.loads(sys.argv[1])))
