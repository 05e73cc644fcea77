"""Digests of weights that AReaL's trainer wrote; runs in AReaL's interpreter.

Arguments: directories, each with a distributed checkpoint (of torch.distributed.checkpoint) or a Hugging Face
model. The answer: for each the digest that grpoflow's server for CPUs logs of the weights that it loaded.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save


def weights(directory):
    """Return the weights by name."""
    if files := sorted(directory.glob("*.safetensors")):
        return {name: tensor for file in files for name, tensor in load_file(file).items()}
    with tempfile.TemporaryDirectory() as temporary:
        file = Path(temporary) / "weights.pt"
        dcp_to_torch_save(directory, file)
        state = torch.load(file, weights_only=True)
    return {name: value for name, value in flat(state) if not name.startswith("optim")}


def flat(values, path=""):
    for key, value in values.items():
        name = f"{path}.{key}" if path else str(key)
        if isinstance(value, dict):
            yield from flat(value, name)
        elif isinstance(value, torch.Tensor):
            yield name, value


def digest(tensors):
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        if name != "lm_head.weight":  # the model's is tied
            total.update(name.encode())
            total.update(tensor.float().contiguous().numpy().tobytes())
    return total.hexdigest()[:16]


if __name__ == "__main__":
    print(json.dumps([digest(weights(Path(argument))) for argument in sys.argv[1:]]))
