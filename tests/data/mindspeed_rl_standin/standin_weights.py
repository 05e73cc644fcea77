"""Checkpoints: Hugging Face's tensors as bits, dealt out to the directories that Megatron would write.

How Megatron names, fuses and cuts them is the real converters' business: tests/upstream/mindspeed_rl.
"""

import json
from pathlib import Path

import numpy as np

BITS = {"F32": np.uint32, "F16": np.uint16, "BF16": np.uint16}
KINDS = {"fp16": "F16", "bf16": "BF16", "fp32": "F32"}
MODEL, OPTIMIZER, TRACKER = "model_optim_rng.pt", "distrib_optim.pt", "latest_checkpointed_iteration.txt"


def read(path):
    """A safetensors file: its kind and {name: bits}."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        data = file.read()
    (kind,) = {entry["dtype"] for entry in header.values()}
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        if end > len(data):
            raise ValueError(f"{path}: cut off")
        tensors[name] = np.frombuffer(data[begin:end], BITS[kind]).reshape(entry["shape"])
    return kind, tensors


def write(path, kind, tensors):
    path.parent.mkdir(parents=True, exist_ok=True)
    header, offset = {}, 0
    for name, value in tensors.items():
        span = [offset, offset + value.nbytes]
        header[name] = {"dtype": kind, "shape": list(value.shape), "data_offsets": span}
        offset = span[1]
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for value in tensors.values():
            file.write(np.ascontiguousarray(value).tobytes())


def gather(files):
    """The tensors of several files of one kind."""
    found = [read(file) for file in files]
    (kind,) = {kind for kind, _ in found}
    return kind, {name: value for _, tensors in found for name, value in tensors.items()}


class Parts:
    """The directories of a checkpoint, by the degrees that it is cut into."""

    def __init__(self, layers, tensor, pipeline, counts=None):
        self.tensor, self.pipeline = tensor, pipeline
        each = [int(n) for n in counts.split(",")] if counts else [layers // pipeline] * pipeline
        assert len(each) == pipeline and sum(each) == layers, (layers, pipeline, counts)

    def name(self, tensor, pipeline):
        return f"mp_rank_{tensor:02d}" + (f"_{pipeline:03d}" if self.pipeline > 1 else "")

    def deal(self, tensors):
        """{directory: its share of the tensors}."""
        names = [self.name(t, p) for p in range(self.pipeline) for t in range(self.tensor)]
        dealt = sorted(tensors)
        return {name: {key: tensors[key] for key in dealt[i :: len(names)]} for i, name in enumerate(names)}


def latest(directory):
    """The directory of the newest checkpoint and its iteration, by the file that names it."""
    tracker = Path(directory) / TRACKER
    if not tracker.is_file():
        raise FileNotFoundError(f"{tracker}: without it training would start from random weights")
    iteration = int(tracker.read_text())
    return Path(directory) / f"iter_{iteration:07d}", iteration
