"""A model in vLLM, on a card or on a CPU; for programs in vLLM's interpreter, beside this file."""
# mypy: ignore-errors

import importlib.util
import math
import os

LEAST_CACHE_GIB = 1
REPLICAS = "GRPOFLOW_REPLICAS"
"""Variable with the number of models that are loaded on this machine at a time."""


def open_model(arguments, share, card_share, cache_bytes):
    """Return vllm.LLM and facts about it.

    On a CPU it computes in float32 without compiling, and takes only the memory that is needed: vLLM's own
    defaults are bfloat16, and nine tenths of the machine. Prompts are never computed in parts there: after
    the first part of a prompt whose samples have seeds, vLLM 0.27.1 turns back its generator of random
    numbers, which PyTorch has for cards only (vllm/v1/worker/gpu_model_runner.py, _bookkeeping_sync).

    Args:
        arguments: those of vllm.LLM but for memory; they override the defaults for a device.
        share: share of a card's memory, or on a CPU of the machine's, for all models on it; None: default.
        card_share: default for a card.
        cache_bytes: keys and values that are needed on a CPU.
    """
    if importlib.util.find_spec("vllm_mindspore"):  # has to replace parts of vLLM before it is imported
        importlib.import_module("vllm_mindspore")
    from vllm import LLM, __version__
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        replicas = int(os.environ.get(REPLICAS, "1"))
        chosen = {"enforce_eager": True, "dtype": "float32", "enable_chunked_prefill": False}
        if arguments.get("tensor_parallel_size", 1) == 1:  # one process less, which takes a gigabyte
            os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        # it has no latent attention for CPUs (vllm/platforms/cpu.py:84): DeepSeek's keys and values are
        # computed from the latent, and cached as in other models
        os.environ.setdefault("VLLM_MLA_DISABLE", "1")
        if share is None:
            needed = min(cache_bytes, available_bytes() // (2 * replicas)) / 2**30
            os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", str(max(LEAST_CACHE_GIB, math.ceil(needed))))
        else:
            chosen["gpu_memory_utilization"] = share / replicas
    else:
        chosen = {"dtype": "auto", "gpu_memory_utilization": card_share if share is None else share}
    llm = LLM(**{**chosen, **arguments})
    dtype = str(llm.llm_engine.model_config.dtype).removeprefix("torch.")
    device = current_platform.device_type
    return llm, {"name": "vllm", "version": __version__, "dtype": dtype, "device": device}


def available_bytes():
    """Return the memory of this machine that is available."""
    with open("/proc/meminfo", encoding="utf-8") as file:
        sizes = dict(line.split(":", 1) for line in file)
    return int(sizes["MemAvailable"].split()[0]) * 1024
