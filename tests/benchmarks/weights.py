"""Measure convert, split and merge of large weights, compared with mindformers, MindSpore and a file copy.

Random weights with the shapes of Qwen2.5-1.5B and 7B are created first (about 65 GB of disk space with 7B).
The interpreters of the compared programs are options: --mindformers CHECKOUT contains
research/qwen2_5/convert_weight.py, and --mindformers-python runs it (it needs mindspore, mindformers'
requirements, torch and transformers). convert is timed as a complete process on both sides; split and merge
are timed from the call of the function to its return.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from stages.weights.complete import merge_directory
from stages.weights.convert import convert_directory
from stages.weights.outputs import OutputFile
from stages.weights.split import split_directory
from stages.weights.strategy.stage import write_strategy
from tests.benchmarks.figures import Cost, Figure, at_least, at_most, run, write
from tests.stages.weights.checkpoints import hf_shapes, make_layout, make_model

CONVERT_TARGET, SPLIT_TARGET, MERGE_TARGET = 10.0, 2.0, 8.0
PEAK_TARGET_GIB = 0.3
COPY_DRIFT_TARGET = 1.2
SHAPES = {
    "1_5b": {"hidden_size": 1536, "num_hidden_layers": 28, "num_attention_heads": 12,
             "num_key_value_heads": 2, "intermediate_size": 8960, "vocab_size": 151936,
             "tie_word_embeddings": True},
    "7b": {"hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
           "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False},
}  # fmt: skip
LAYOUT = {"model_parallel": 4, "pipeline_stage": 2}
STEPS = {
    "convert": lambda root: convert_directory(root / "hf", root / "out", False, None),
    "split": lambda root: split_directory(root / "hf", root / "strategy", root / "out"),
    "merge": lambda root: merge_directory(root / "ranks", root / "strategy", root / "out"),
}
REPOSITORY = Path(__file__).parents[2]


def main(arguments: list[str]) -> bool:
    """Measure and write results/weights.json; return True if every target is met."""
    parser = argparse.ArgumentParser(prog="tests.benchmarks weights", description=__doc__)
    parser.add_argument("--mindformers", type=Path, help="a mindformers checkout (convert's peer)")
    parser.add_argument("--mindformers-python", default=sys.executable)
    parser.add_argument("--mindspore-python", default=sys.executable)
    parser.add_argument("--scratch", type=Path, help="a directory with enough space; default: the system's")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--layers", type=int, help="fewer layers, to try the benchmark itself")
    parser.add_argument("--without-7b", action="store_true")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.scratch) as directory:
        return write("weights", _measure(Path(directory), options))


def _measure(root: Path, options: argparse.Namespace) -> list[Figure]:
    small, costs, ratio = _prepare(root, "1_5b", 1, options.layers), {}, {}
    for step in STEPS:
        reference = _peer(step, small, options)
        sides = [partial(_ours, step, small), *([reference] if reference else [])]
        measured = _in_turn(options.runs, [small / "out", small / "peer"], *sides)
        costs[step] = measured[0]
        ratio[step] = measured[1].wall_s / measured[0].wall_s if reference else None
        if reference:
            costs[f"{step}_peer"] = measured[1]
    figures = [
        at_least("convert_ratio", ratio["convert"], CONVERT_TARGET),
        at_least("split_ratio", ratio["split"], SPLIT_TARGET),
        at_least("merge_ratio", ratio["merge"], MERGE_TARGET),
    ]
    copy_small = _copy_ratio(small, options.runs)
    shutil.rmtree(small)
    figures.append(Figure("copy_ratio_1_5b", copy_small, "ratio"))
    if not options.without_7b:
        large = _prepare(root, "7b", 4, options.layers)
        for step in STEPS:
            costs[f"{step}_7b"] = _in_turn(1, [large / "out"], partial(_ours, step, large))[0]
        copy_large = _copy_ratio(large, options.runs)
        figures.append(at_most("copy_ratio_7b", copy_large, COPY_DRIFT_TARGET * copy_small))
        size = sum(file.stat().st_size for file in (large / "hf").glob("*.safetensors"))
        figures.append(Figure("bytes_7b", size / 1e9, "GB"))
    else:
        figures.append(at_most("copy_ratio_7b", None, COPY_DRIFT_TARGET * copy_small))
    peaks = [cost.peak_gib for name, cost in costs.items() if not name.endswith("_peer")]
    figures.append(at_most("peak_gib", max(peaks), PEAK_TARGET_GIB, "GiB"))
    for name, cost in costs.items():
        figures += [Figure(f"{name}_s", cost.wall_s, "s"), Figure(f"{name}_peak_gib", cost.peak_gib, "GiB")]
    return figures


def _prepare(root: Path, size: str, shards: int, layers: int | None) -> Path:
    """Create root/size with hf/ (random weights), strategy/, ranks/ and, for MindSpore, full/rank_0/."""
    model = make_model(**SHAPES[size] | ({"num_hidden_layers": layers} if layers else {}))
    folder = root / size
    shapes = list(hf_shapes(model).items())
    block = memoryview(np.random.default_rng(0).integers(0, 256, 2**24, dtype=np.uint8))  # type: ignore[arg-type]
    weight_map = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors" if shards > 1 else "model.safetensors"
        chosen = shapes[shard * len(shapes) // shards : (shard + 1) * len(shapes) // shards]
        file = OutputFile(
            folder / "hf" / name, [(item, "BF16", shape) for item, shape in chosen], {"format": "pt"}
        )
        for offset in range(file.offset(chosen[0][0]), file.size, len(block)):
            file.pwrite(block[: file.size - offset], offset)
        file.close()
        weight_map |= {item: name for item, _ in chosen}
    if shards > 1:
        index = {"metadata": {}, "weight_map": weight_map}
        (folder / "hf" / "model.safetensors.index.json").write_text(json.dumps(index))
    config = {key: getattr(model, key) for key in SHAPES[size]}
    config |= {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "torch_dtype": "bfloat16"}
    (folder / "hf" / "config.json").write_text(json.dumps(config))
    write_strategy(model, make_layout(**LAYOUT), folder / "strategy")
    split_directory(folder / "hf", folder / "strategy", folder / "ranks")
    if shards == 1:
        convert_directory(folder / "hf", folder / "full" / "rank_0", False, None)
    os.sync()
    return folder


def _step(name: str, root: Path) -> None:
    """Run one step of grpoflow in a child process; print wall time and peak memory."""
    began = time.perf_counter()
    STEPS[name](root)
    seconds = time.perf_counter() - began
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))


_MINDSPORE = """
import json, resource, sys, time
import mindspore
source, out, *strategies = (None if one == "-" else one for one in sys.argv[1:])
began = time.perf_counter()
mindspore.transform_checkpoints(source, out, "t", *strategies, output_format="safetensors")
took = time.perf_counter() - began
print(json.dumps([took, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))
"""


def _ours(step: str, root: Path) -> Cost:
    code = "import sys; from pathlib import Path; from tests.benchmarks.weights import _step; "
    code += "_step(sys.argv[1], Path(sys.argv[2]))"
    done = run([sys.executable, "-c", code, step, str(root)], REPOSITORY)
    return done if step == "convert" else _inner(done)


def _inner(done: Cost) -> Cost:
    """Return the cost of one function, which the process has printed."""
    return Cost(*json.loads(done.output.splitlines()[-1]))


def _peer(step: str, root: Path, options: argparse.Namespace) -> Callable[[], Cost] | None:
    """Return a function that runs mindformers' convert_weight.py or MindSpore; None without a checkout."""
    if step != "convert":
        merged = str(root / "strategy" / "merged_ckpt_strategy.ckpt")
        source, *strategies = ("full", "-", merged) if step == "split" else ("ranks", merged, "-")
        paths = [str(root / source), str(root / "peer"), *strategies]
        return lambda: _inner(run([options.mindspore_python, "-c", _MINDSPORE, *paths]))
    if options.mindformers is None:
        return None
    checkout = options.mindformers.resolve()
    script = str(checkout / "research" / "qwen2_5" / "convert_weight.py")
    command = [options.mindformers_python, script, "--torch_ckpt_dir", str(root / "hf"), "--dtype", "bf16"]
    command += ["--mindspore_ckpt_path", str(root / "peer" / "qwen2_5.ckpt"), "--qkv_concat", "False"]

    def converted() -> Cost:
        (root / "peer").mkdir()
        return run(command, root, {"PYTHONPATH": str(checkout)})

    return converted


def _in_turn(runs: int, outputs: list[Path], *sides: Callable[[], Cost]) -> list[Cost]:
    """Return median wall time and maximum memory of functions that alternate, each after a disk sync."""
    costs: list[list[Cost]] = [[] for _ in sides]
    for _ in range(runs):
        for side, measured in zip(sides, costs, strict=True):
            for path in outputs:
                _remove(path)
            os.sync()
            measured.append(side())
    for path in outputs:
        _remove(path)
    return [Cost(statistics.median(c.wall_s for c in side), max(c.peak_gib for c in side)) for side in costs]


def _copy_ratio(root: Path, runs: int) -> float:
    """Return the time of split divided by the time of copying the same bytes, both including the sync."""

    def synced(work: Callable[[], Cost]) -> Cost:
        cost, began = work(), time.perf_counter()
        os.sync()
        return Cost(cost.wall_s + time.perf_counter() - began, cost.peak_gib)

    sides = (partial(synced, partial(_copy, root)), partial(synced, partial(_ours, "split", root)))
    copied, split = _in_turn(runs, [root / "out", root / "copy"], *sides)
    return split.wall_s / copied.wall_s


def _copy(root: Path) -> Cost:
    (root / "copy").mkdir()
    began = time.perf_counter()
    for file in (root / "hf").glob("*.safetensors"):
        shutil.copyfile(file, root / "copy" / file.name)
    return Cost(time.perf_counter() - began, 0.0)


def _remove(path: Path) -> None:
    if path.exists():
        for item in [path, *path.rglob("*")]:  # MindSpore leaves files of mode 0400
            item.chmod(0o700)
        shutil.rmtree(path)
