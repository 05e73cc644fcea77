"""Checkpoints: Hugging Face's float32 tensors as bits, dealt out to the directories that Megatron writes.

How Megatron names, fuses and cuts them is the real converters' business: tests/upstream/mindspeed_rl.
"""

from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

MODEL, OPTIMIZER, TRACKER = "model_optim_rng.pt", "distrib_optim.pt", "latest_checkpointed_iteration.txt"


def read(*files):
    """Return the tensors of some files as bits, by name."""
    return {name: value.view(np.uint32) for file in files for name, value in load_file(file).items()}


def write(path, tensors):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: value.view(np.float32) for name, value in tensors.items()}, path)


class Parts:
    """The directories of a checkpoint, by the degrees that it is cut into."""

    def __init__(self, layers, tensor, pipeline, counts=None):
        self.tensor, self.pipeline = tensor, pipeline
        each = [int(n) for n in counts.split(",")] if counts else [layers // pipeline] * pipeline
        assert len(each) == pipeline and sum(each) == layers, (layers, pipeline, counts)

    def name(self, tensor, pipeline):
        return f"mp_rank_{tensor:02d}" + (f"_{pipeline:03d}" if self.pipeline > 1 else "")

    def deal(self, tensors):
        """Return the directories, each with its share of the tensors."""
        names = [self.name(t, p) for p in range(self.pipeline) for t in range(self.tensor)]
        dealt = sorted(tensors)
        return {name: {key: tensors[key] for key in dealt[i :: len(names)]} for i, name in enumerate(names)}


def latest(directory):
    """Return the directory of the newest checkpoint and its iteration, by the file that names it."""
    tracker = Path(directory) / TRACKER
    if not tracker.is_file():
        raise FileNotFoundError(f"{tracker}: without it training would start from random weights")
    iteration = int(tracker.read_text())
    return Path(directory) / f"iter_{iteration:07d}", iteration
