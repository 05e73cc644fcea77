"""The estimate of engine=local's training activations beside the memory that its trainer really takes.

It validates the formula on MindSpore's CPU graphs, no more: an Ascend card was never measured. One process
per shape makes updates as the grpo stage does; what a process of the same model with next to no tokens takes
is taken off: interpreter, graphs, weights, gradients and optimizer state, which other tests count exactly.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pipeline.config.load import load
from stages.grpo import memory
from tests.benchmarks.figures import Figure, at_most, write

BAR = 0.15
UPDATES = 3


@dataclass(frozen=True)
class Shape:
    """A model and a batch."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    prompts: int
    generations: int
    prompt_tokens: int
    max_tokens: int


SHAPES = {
    "tiny_model": Shape(128, 4, 4, 2, 352, 512, 16, 8, 32, 64),
    "wide": Shape(512, 2, 8, 2, 1408, 2048, 4, 8, 32, 64),
    "deep": Shape(128, 8, 4, 4, 352, 512, 8, 8, 32, 64),
    "long_completions": Shape(128, 4, 4, 2, 352, 512, 2, 8, 32, 320),
    "long_prompts": Shape(128, 4, 4, 2, 352, 512, 8, 4, 256, 64),
    "large_vocabulary": Shape(128, 2, 4, 2, 352, 16384, 8, 8, 32, 32),
    "narrow_feed_forward": Shape(256, 4, 8, 8, 256, 512, 8, 8, 32, 64),
    "broad_feed_forward": Shape(128, 4, 4, 1, 1024, 512, 8, 8, 32, 64),
}


def main(arguments: list[str]) -> bool:
    """Measure, write results/memory.json; True when every bar is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks memory", description=__doc__)
    parser.add_argument("--shapes", default=",".join(SHAPES), help="which of them")
    parser.add_argument("--probe", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.probe:
        print(json.dumps(probe(Shape(**json.loads(options.probe)))))
        return True
    figures = []
    for name in options.shapes.split(","):
        shape = SHAPES[name]
        measured = _apart(shape) - _apart(
            replace(shape, prompts=1, generations=2, prompt_tokens=4, max_tokens=4)
        )
        low, high = estimated(shape)
        middle = (low + high) / 2
        figures += [
            at_most(f"{name}_error", abs(middle - measured) / measured, BAR),
            Figure(f"{name}_measured", measured / 2**20, "MiB"),
            Figure(f"{name}_low", low / 2**20, "MiB"),
            Figure(f"{name}_high", high / 2**20, "MiB"),
        ]
    return write("memory", figures)


def estimated(shape: Shape) -> tuple[int, int]:
    """Bytes of activations and logits, as `plan` tells them: low and high."""
    config = load(
        [
            f"model.hidden_size={shape.hidden}", f"model.num_hidden_layers={shape.layers}",
            f"model.num_attention_heads={shape.heads}", f"model.num_key_value_heads={shape.kv_heads}",
            f"model.intermediate_size={shape.intermediate}", f"model.vocab_size={shape.vocab}",
            "layout=dp1_mp1_pp1", f"train.prompts_per_step={shape.prompts}",
            f"rollout.num_generations={shape.generations}", f"rollout.max_tokens={shape.max_tokens}",
            "rollout.min_tokens=0",
        ]
    )  # fmt: skip
    [role] = [
        role
        for role in memory.estimate(
            config.model, config.layout, config.train, config.rollout, shape.prompt_tokens
        )
        if role.role == "train"
    ]
    terms = [term for term in role.terms if term.name in ("activations", "logits")]
    return sum(term.low for term in terms), sum(term.high for term in terms)


def _apart(shape: Shape) -> int:
    """`probe` in a process of its own."""
    line = [sys.executable, "-m", "tests.benchmarks", "memory", "--probe", json.dumps(asdict(shape))]
    env = {**os.environ, "GLOG_v": "3", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(line, capture_output=True, text=True, timeout=300, check=True, env=env)
    return int(done.stdout.splitlines()[-1])


def probe(shape: Shape) -> int:
    """Highest resident memory of this process in an update after the first, in bytes."""
    import mindspore as ms
    import numpy as np

    from stages.grpo.batch import Batch
    from stages.grpo.buckets import Bucket
    from stages.grpo.collectives import Groups
    from stages.grpo.learner import Learner
    from stages.grpo.loss import PolicyLoss
    from stages.grpo.model import CausalLM
    from stages.grpo.parallel import SINGLE
    from tests.stages.grpo import small
    from tests.stages.grpo.test_loss import train_config

    ms.set_context(mode=ms.GRAPH_MODE)
    model = small.model_config(
        hidden_size=shape.hidden, num_hidden_layers=shape.layers, num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads, intermediate_size=shape.intermediate, vocab_size=shape.vocab,
    )  # fmt: skip
    P, G, S, T = shape.prompts, shape.generations, shape.prompt_tokens, shape.max_tokens
    net = CausalLM(model, S + T)
    random = np.random.default_rng(0)
    shapes = zip(net.names, net.trainable_params(), strict=True)
    net.load({name: random.normal(0, 0.02, value.shape).astype(np.float32) for name, value in shapes})
    config = train_config(learning_rate=1e-6, num_iterations=1)
    split = [False] * len(net.names)
    learner = Learner(net, PolicyLoss(config), config, SINGLE, Groups(1), split, 1.0)
    prompt, length = small.prompts(model, P, S)
    completion = random.integers(2, model.vocab_size, (P, G, T))
    zeros = np.zeros((P * G, T), np.float32)
    batch = Batch(prompt, length, completion, weight_BT=zeros + 1 / zeros.size, mask_BT=zeros + 1,
                  advantage_B1=np.ones((P * G, 1)), old_logprobs_BT=zeros, ref_logprobs_BT=zeros)  # fmt: skip
    whole = [Bucket(np.arange(P), T)]
    learner.update(batch, whole)
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what compiling took
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak starts anew
    for _ in range(UPDATES):
        learner.update(batch, whole)
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
