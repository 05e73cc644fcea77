"""Comparison of an exported model with the shards that were merged: `PYTHON compare.py SHARDS EXPORTED`.

It prints the largest difference of a weight, as a share of the largest weight of its tensor. Runs in verl's
interpreter.
"""
# mypy: ignore-errors

import json
import sys
from pathlib import Path

import torch
import torch.distributed.tensor  # registers DTensor as safe to load
from safetensors.torch import load_file

DOWN, UP = ".lora_A.default", ".lora_B.default"


def read_shards(directory):
    """Return the complete weights in float32; FSDP2 divides the first dimension."""
    files = sorted(
        directory.glob("model_world_size_*.pt"), key=lambda file: int(file.stem.rpartition("_")[2])
    )
    shards = [torch.load(file, map_location="cpu", weights_only=True) for file in files]
    local = [
        {name: getattr(value, "_local_tensor", value).float() for name, value in shard.items()}
        for shard in shards
    ]
    return local[0] if len(local) == 1 else {name: torch.cat([s[name] for s in local]) for name in local[0]}


def add_adapters(directory, state):
    """Return the weights by their names in the fetched model, with LoRA's adapters added to them."""
    names = {name.removeprefix("base_model.model."): value for name, value in state.items()}
    weights = {name.replace(".base_layer", ""): value for name, value in names.items()}
    for name in [name for name in names if DOWN in name]:
        meta = json.loads((directory / "lora_train_meta.json").read_text())
        up = names[name.replace(DOWN, UP)]
        weights[name.replace(DOWN, "")] += meta["lora_alpha"] / meta["r"] * up @ names[name]
    return weights


def main(shards, exported):
    """Print the result."""
    weights = add_adapters(shards, read_shards(shards))
    differences = [
        (tensor.float() - weights[name]).abs().max() / weights[name].abs().max().clamp(min=1e-9)
        for file in exported.glob("*.safetensors")
        for name, tensor in load_file(file).items()
    ]
    print(max(differences).item())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
