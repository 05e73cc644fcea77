"""Compare the completions per second of the grpo stage with those of TRL's GRPOTrainer on the same cores.

Same weights, prompts, group size and beta. At the shapes `small`, `large` and random ones all completions
have the full length; at `long_tail` lengths vary as those of GSM8K's solutions do. The peer is the fastest of
TRL's default precision (bf16) and float32, with one and with several micro-batches, found in a first round of
fewer steps. Then the two programs take turns, one process each, because machines drift by a quarter; medians
of all steps after warm-up. --trl-python names an interpreter with TRL.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import secrets
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from pipeline.config.load import load
from stages.base.errors import InputError
from stages.grpo.data import Vocabulary, read_prompts
from tests.benchmarks.figures import Figure, at_least, at_most, write
from tests.benchmarks.peers import train_with_trl
from tests.stages.grpo import test_workers
from tests.stages.grpo.test_workers import metrics, run

WARM_UP, MEASURED, TRIED = 3, 7, 3
HOPELESS = 2
"""bf16 with several micro-batches is not tried if with one it takes this many times as long as float32."""
ROUNDS = 3
"""Processes of each side."""
P, G = 8, 8
MEMORY_RATIO, SCALING = 1.1, 0.95
RATIOS = {"small": 1.4, "large": 1.2, "long_tail": 2.0}
"""Targets; random shapes have that of the large one."""
SHAPES = {
    "small": {"hidden": 128, "layers": 4, "intermediate": 352, "tokens": 64, "micro_batches": 2},
    "large": {"hidden": 256, "layers": 8, "intermediate": 704, "tokens": 128, "micro_batches": 4},
    "long_tail": {"hidden": 128, "layers": 4, "intermediate": 352, "tokens": 512, "micro_batches": 4,
                  "least_tokens": 55},
}  # fmt: skip
"""`least_tokens`: completions end from there on with a probability of 1 / MEAN_REST at each token, else at
`tokens`. Micro-batches give the same gradient with fewer activations."""
MEAN_REST = 65
"""With 55 least tokens half of the completions have at most 100 tokens, and 95 % at most 250."""
ADDENDS = 18, 62
"""Numbers in a problem of long_tail, for prompts of 60 to 200 tokens."""
LAYOUTS = {
    1: ["layout.train.model_parallel=1", "layout.generate.data_parallel=1"],
    2: ["layout.train.data_parallel=2", "layout.train.model_parallel=1"],
}


def count_ones(completions: Sequence[str], solutions: Sequence[str]) -> list[float]:
    """Return rewards that differ between completions."""
    del solutions
    return [completion.count("1") / 10 for completion in completions]


def main(arguments: list[str]) -> bool:
    """Measure and write results/grpo_vs_trl.json; return True if every target is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks grpo_vs_trl", description=__doc__)
    parser.add_argument(
        "--trl-python", help="interpreter that can import trl; without it targets are not met"
    )
    parser.add_argument("--sizes", default=",".join(SHAPES), help="which of small, large and long_tail")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="processes of each side")
    parser.add_argument("--steps", type=int, default=MEASURED, help="measured steps of each process")
    parser.add_argument("--random", type=int, default=3, help="number of additional random shapes")
    parser.add_argument(
        "--seed", type=int, default=secrets.randbelow(2**32), help="seed of the random shapes; printed"
    )
    options = parser.parse_args(arguments)
    shapes = {size: SHAPES[size] for size in options.sizes.split(",") if size}
    random = np.random.default_rng(options.seed)
    shapes |= {f"random_{number}": draw(random) for number in range(options.random)}
    print(f"grpo_vs_trl: --seed {options.seed}: {shapes}", flush=True)
    figures = [Figure("seed", options.seed, "of the random shapes")]
    for size, shape in shapes.items():
        measured = {**shape, "steps": WARM_UP + options.steps}
        figures += measure(size, measured, options.trl_python, options.rounds)
    return write("grpo_vs_trl", figures)


def draw(random: np.random.Generator) -> dict[str, int]:
    """Return a random shape, from slightly below the small one up to the large one."""
    hidden = int(random.integers(6, 17)) * 16
    return {
        "hidden": hidden,
        "layers": int(random.integers(2, 9)),
        "intermediate": hidden * 11 // 4,
        "tokens": int(random.integers(2, 9)) * 16,
        "micro_batches": int(random.choice([2, 4])),
    }


def measure(size: str, shape: dict[str, int], trl_python: str | None, rounds: int) -> list[Figure]:
    """Return all figures of one size."""
    steps: dict[str, list[dict[str, float]]] = {}
    peaks: dict[str, list[float]] = {}

    def add(name: str, rows: Sequence[dict[str, float]], peak_gib: float) -> None:
        steps.setdefault(name, []).extend(rows[WARM_UP:])
        peaks.setdefault(name, []).append(peak_gib)

    def add_ours(root: Path, workers: int) -> None:
        rows = ours(root / str(workers), shape, workers)
        add(f"{workers}_worker", rows, rows[-1]["peak_memory_gib"])

    with tempfile.TemporaryDirectory() as directory:
        root, fastest = Path(directory), None
        if trl_python is not None:
            step_s = dict[tuple[bool, int], float]()
            for bf16, micro_batches in itertools.product((False, True), (1, shape["micro_batches"])):
                if bf16 and step_s.get((True, 1), 0) > HOPELESS * min(step_s.values()):
                    continue
                result = theirs(root, {**shape, "steps": WARM_UP + TRIED}, trl_python, micro_batches, bf16)
                name = f"trl_{'bf16' if bf16 else 'float32'}_{micro_batches}"
                add(name, result["steps"], result["peak_memory_gib"])
                step_s[bf16, micro_batches] = summary(result["steps"][WARM_UP:], 0.0)["step_s"]
            fastest = min(step_s, key=lambda setting: step_s[setting])
        for _ in range(rounds):
            add_ours(root, 1)
            if fastest is not None and trl_python is not None:
                result = theirs(root, shape, trl_python, fastest[1], fastest[0])
                add("trl", result["steps"], result["peak_memory_gib"])
        add_ours(root, 2)
    sides = {name: summary(steps[name], statistics.median(peaks[name])) for name in steps}
    rate = {name: P * G / side["step_s"] for name, side in sides.items()}
    ratio = memory = None
    if fastest is not None:
        ratio = rate["1_worker"] / rate["trl"]
        memory = sides["1_worker"]["peak_memory_gib"] / sides["trl"]["peak_memory_gib"]
        print(f"grpo_vs_trl: {size}: bf16, micro-batches of the fastest peer: {fastest}", flush=True)
    return [
        at_least(f"{size}_ratio", ratio, RATIOS.get(size, RATIOS["large"])),
        at_most(f"{size}_memory_ratio", memory, MEMORY_RATIO),
        at_least(f"{size}_scaling_to_2_workers", rate["2_worker"] / rate["1_worker"], SCALING),
        *(Figure(f"{size}_{name}_completions_per_s", value, "1/s") for name, value in rate.items()),
        *(
            Figure(f"{size}_{name}_{key}", side[key], "GiB" if key.endswith("gib") else "s")
            for name, side in sides.items()
            for key in ("rollout_s", "rest_s", "peak_memory_gib")
        ),
        *(
            Figure(f"{size}_{name}_step_s_{number}", row["step_s"], "s")
            for name in ("1_worker", "trl")
            for number, row in enumerate(steps.get(name, []), start=1)
        ),
    ]


def summary(steps: Sequence[dict[str, float]], peak: float) -> dict[str, float]:
    """Return median times of steps: total, generation, and the remainder (log-probabilities, update)."""
    complete = statistics.median(step["step_s"] for step in steps)
    rollout = statistics.median(step["rollout_s"] for step in steps)
    return {"step_s": complete, "rollout_s": rollout, "rest_s": complete - rollout, "peak_memory_gib": peak}


def overrides(shape: dict[str, int], workers: int) -> list[str]:
    """Return the overrides of one size."""
    tail = "least_tokens" in shape
    return [
        f"model.hidden_size={shape['hidden']}", f"model.num_hidden_layers={shape['layers']}",
        f"model.intermediate_size={shape['intermediate']}", "model.vocab_size=2048",
        f"model.tie_word_embeddings={not tail}",  # `end_sometimes` changes the head alone
        "dataset.train_rows=256", "dataset.test_rows=8", "sft.enabled=false",
        f"rollout.num_generations={G}", f"rollout.max_tokens={shape['tokens']}",
        f"rollout.min_tokens={shape.get('least_tokens', shape['tokens'])}",
        f"train.prompts_per_step={P}", "train.beta=0.01",
        *(["train.learning_rate=1e-6"] if tail else []),  # or the lengths would change
        f"train.steps={shape.get('steps', WARM_UP + MEASURED)}", "train.warmup_steps=0",
        "train.checkpoint_every=0",
        "reward.functions=[tests.benchmarks.grpo_vs_trl:count_ones]", "reward.weights=[1]",
        *(f"layout.{role}.micro_batch_num={shape['micro_batches']}" for role in ("train", "reference")),
        *LAYOUTS[workers],
    ]  # fmt: skip


def prepare(root: Path, shape: dict[str, int], workers: int) -> Any:
    """Prepare all that grpo reads; return the configuration."""
    if "least_tokens" not in shape:
        return test_workers.prepare(root, overrides(shape, workers))
    root.mkdir(exist_ok=True)
    problems = root / "problems.jsonl"
    write_problems(problems, 256 + 8)
    config = load(
        [
            *overrides(shape, workers), "dataset.source=local", f"dataset.path={problems}",
            "tokenize.max_prompt_length=208", "tokenize.sft_length=240",
        ]
    )  # fmt: skip
    run(root, "fetch", config)
    end_sometimes(root / "fetch")
    for stage in ("fetch_dataset", "convert", "tokenize", "strategy", "split"):
        run(root, stage, config)
    lengths = read_prompts(
        root / "tokenize" / "train.mindrecord", Vocabulary.read(root / "fetch", config.model)
    ).lengths
    assert 50 <= lengths.min() <= 70 and 190 <= lengths.max() <= 208, (lengths.min(), lengths.max())
    return config


def write_problems(path: Path, count: int) -> None:
    """Write addition problems of many numbers."""
    random = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            numbers = random.integers(1, 10, random.integers(ADDENDS[0], ADDENDS[1] + 1)).tolist()
            listed = ", ".join(map(str, numbers[:-1]))
            question = f"Tom has {listed} and {numbers[-1]} apples. How many in all?"
            row = {"question": question, "answer": f"#### {sum(numbers)}"}
            file.write(json.dumps(row) + "\n")


def end_sometimes(model: Path) -> None:
    """Change a model with random weights so that it ends a completion with probability 1 / MEAN_REST.

    All embeddings get a common part, which the last norm's output then has at every position, and the head's
    row of the end token a multiple of it: a bias on the end token without a parameter for one.

    Raises:
        InputError: the model has another form.
    """
    file = model / "model.safetensors"
    tensors = load_file(file)
    if "lm_head.weight" not in tensors:
        raise InputError(file, None, "has no lm_head.weight", "set model.tie_word_embeddings=false")
    config = json.loads((model / "config.json").read_text(encoding="utf-8"))
    embedding, head = tensors["model.embed_tokens.weight"], tensors["lm_head.weight"]
    V, H = embedding.shape
    direction = np.full(H, H**-0.5, np.float32)
    # So large that neither an embedding's own part nor what the layers add matters after the last norm.
    common = 100 * float(np.linalg.norm(embedding, axis=1).mean())
    tensors["model.embed_tokens.weight"] = embedding + common * direction
    hidden = H**0.5  # norm of what the last norm returns
    others = (V - 1) * math.exp((float(head.std()) * hidden) ** 2 / 2)  # mean of a log-normal number
    head[config["eos_token_id"]] = math.log(others / (MEAN_REST - 1)) / hidden * direction
    save_file(tensors, file, {"format": "pt"})


def ours(root: Path, shape: dict[str, int], workers: int) -> list[dict[str, Any]]:
    """Train with grpoflow; return the rows of metrics.jsonl."""
    config = prepare(root, shape, workers)
    output = run(root, "grpo", config)
    rows: list[dict[str, Any]] = metrics(output)
    if "least_tokens" not in shape:
        assert all(row["completion_length"] == shape["tokens"] for row in rows)
        return rows
    lengths = np.concatenate(
        [np.load(file)["completion_lengths"] for file in sorted((output / "completions").glob("*.npz"))]
    )
    median, most = np.percentile(lengths, [50, 95])
    print(
        f"grpo_vs_trl: lengths: median {median:g}, 95 % at most {most:g}, mean {lengths.mean():.1f}",
        flush=True,
    )
    assert 105 <= lengths.mean() <= 135 and lengths.min() > shape["least_tokens"]
    return rows


def theirs(
    root: Path, shape: dict[str, int], python: str, micro_batches: int, bf16: bool = False
) -> dict[str, Any]:
    """Train with TRL and grpoflow's weights and prompts; return the times of its steps."""
    config = prepare(root / "peer", shape, 1)
    vocabulary = Vocabulary.read(root / "peer" / "fetch", config.model)
    prompts = read_prompts(root / "peer" / "tokenize" / "train.mindrecord", vocabulary)
    train, rollout = config.train, config.rollout
    arguments = {
        "per_device_train_batch_size": P * G // micro_batches, "gradient_accumulation_steps": micro_batches,
        "num_generations": G, "max_completion_length": rollout.max_tokens, "max_steps": train.steps,
        "generation_kwargs": {"min_new_tokens": rollout.min_tokens}, "temperature": 1.0, "beta": train.beta,
        "loss_type": train.loss_type, "learning_rate": train.learning_rate, "adam_beta1": train.adam_beta1,
        "adam_beta2": train.adam_beta2, "max_grad_norm": train.max_grad_norm, "bf16": bf16,
    }  # fmt: skip
    settings = {"model": str(root / "peer" / "fetch"), "texts": prompts.texts, "arguments": arguments}
    result = train_with_trl(python, root, settings)
    if "least_tokens" in shape:
        mean = statistics.mean(result["lengths"])
        print(f"grpo_vs_trl: TRL's lengths: mean {mean:.1f}", flush=True)
        assert 105 <= mean <= 135
    return result
