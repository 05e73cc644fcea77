"""Comparison of an export with the fetched model and its adapters; runs in verl's interpreter.

Request on stdin: fetch, grpo, export (artifacts) and scale (alpha / rank). The answer, with differences as
shares of a tensor's largest weight: whether the exported names are the fetched ones, the largest difference
of the shards' base from the fetched weights and of the export from the sum, the smallest change by adapters.
"""

import json
import sys
from pathlib import Path

from adapters import merge
from oracle import read_shards
from safetensors.torch import load_file


def load(directory):
    return {
        name: tensor.float()
        for file in Path(directory).glob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


def share(difference, tensor):
    return (difference.abs().max() / tensor.abs().max()).item()


def main(request):
    fetched, exported = load(request["fetch"]), load(request["export"])
    base, updates = merge(read_shards(Path(request["grpo"]) / "actor"), request["scale"])
    sums = {name: base[name] + updates.get(name, 0) for name in fetched}
    return {
        "names": exported.keys() == fetched.keys(),
        "base": max(share(base[name] - tensor, tensor) for name, tensor in fetched.items()),
        "difference": max(share(exported[name] - tensor, tensor) for name, tensor in sums.items()),
        "smallest_update": min(share(update, base[name]) for name, update in updates.items()),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
