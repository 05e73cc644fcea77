"""Time of stage evaluate with a model of the shape of Qwen2.5-0.5B: by vLLM, and by the embedded network.

Both use the same cores, random weights, prompts and lengths, and both are measured from the command to its
end, with the start of their processes. Both compute in float32; vLLM is measured in bfloat16, too, as it
computes on cards. The programs take turns. --vllm-python names an interpreter with vLLM for CPUs (`make
upstream ONLY=vllm` makes one).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from tests.benchmarks.figures import Figure, at_most, write
from tests.upstream.vllm.product import Prepared, prepare, result

PROMPTS, SAMPLE_PROMPTS, SAMPLES, TOKENS = 64, 16, 4, 64
SHAPE = [
    "model=qwen2_5_0_5b", "model.source=builtin", "model.hub=null", "model.variant=base",
    "model.torch_dtype=float32", "dataset=arith", "dataset.train_rows=64", f"dataset.test_rows={PROMPTS}",
    f"rollout.max_tokens={TOKENS}",
    f"evaluate.num_prompts={PROMPTS}", f"evaluate.sample_prompts={SAMPLE_PROMPTS}",
    f"evaluate.num_samples={SAMPLES}", "evaluate.k=2", f"evaluate.batch_prompts={PROMPTS}",
]  # fmt: skip
PROGRAMS = {
    "vllm": ["evaluate.program=vllm"],
    "vllm_bfloat16": ["evaluate.program=vllm", "evaluate.dtype=bfloat16"],
    "local": ["evaluate.program=local"],
}
"""Name -> overrides."""
LIMIT = 0.5


def main(arguments: list[str]) -> bool:
    """Measure and write results/inference.json; return True if vLLM takes at most half of the time."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks inference", description=__doc__)
    parser.add_argument("--vllm-python", default="upstream/venv-vllm/bin/python", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    times: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    if options.vllm_python.exists():
        with tempfile.TemporaryDirectory() as directory:
            run = prepare(Path(directory), options.vllm_python.absolute(), shape=SHAPE)
            for name in [*PROGRAMS] * options.rounds:
                times[name].append(seconds(run, PROGRAMS[name]))
    medians = {name: statistics.median(values) for name, values in times.items() if values}
    ratio, halved = (medians[name] / medians["local"] if medians else None for name in [*PROGRAMS][:2])
    return write(
        "inference",
        [
            Figure("completions", 2 * (PROMPTS + SAMPLE_PROMPTS * SAMPLES), f"of at most {TOKENS} tokens"),
            at_most("vllm_to_local", ratio, LIMIT),
            Figure("vllm_bfloat16_to_local", halved, "ratio"),
            *(Figure(f"{name}_s", value, "s") for name, all_s in times.items() for value in all_s),
        ],
    )


def seconds(run: Prepared, overrides: list[str]) -> float:
    """Return the seconds that evaluate takes from the command to its end."""
    began = time.monotonic()
    artifact = run.evaluate(*overrides, force=True)
    took_s = time.monotonic() - began
    program = result(artifact).get("program", {"name": "local"})
    measured = {"evaluate.program": program["name"], "evaluate.dtype": program.get("dtype")}
    for key, _, value in (override.partition("=") for override in overrides):
        assert measured[key] == value
    return took_s
