"""Time of stage evaluate with a model of the shape of Qwen2.5-0.5B: by vLLM, and by the embedded network.

Both use the same cores, random weights, prompts and lengths, both compute in float32, and both are measured
from the command to its end, with the start of their processes. The two take turns. --vllm-python names an
interpreter with vLLM for CPUs (`make upstream ONLY=vllm` makes one).
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
LIMIT = 0.5


def main(arguments: list[str]) -> bool:
    """Measure and write results/inference.json; return True if vLLM takes at most half of the time."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks inference", description=__doc__)
    parser.add_argument("--vllm-python", default="upstream/venv-vllm/bin/python", type=Path)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args(arguments)
    times: dict[str, list[float]] = {"vllm": [], "local": []}
    if options.vllm_python.exists():
        with tempfile.TemporaryDirectory() as directory:
            run = prepare(Path(directory), options.vllm_python.absolute(), shape=SHAPE)
            for program in [*times] * options.rounds:
                times[program].append(seconds(run, program))
    medians = {program: statistics.median(values) for program, values in times.items() if values}
    ratio = medians["vllm"] / medians["local"] if medians else None
    return write(
        "inference",
        [
            Figure("completions", 2 * (PROMPTS + SAMPLE_PROMPTS * SAMPLES), f"of at most {TOKENS} tokens"),
            at_most("vllm_to_local", ratio, LIMIT),
            *(Figure(f"{program}_s", value, "s") for program, all_s in times.items() for value in all_s),
        ],
    )


def seconds(run: Prepared, program: str) -> float:
    """Return the seconds that evaluate takes from the command to its end."""
    began = time.monotonic()
    artifact = run.evaluate(f"evaluate.program={program}", force=True)
    took_s = time.monotonic() - began
    assert result(artifact).get("program", {"name": "local"})["name"] == program
    return took_s
