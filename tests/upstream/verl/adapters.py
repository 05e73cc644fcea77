"""Adapters of a run of verl, merged in plain torch; runs in verl's interpreter.

Request on stdin: fetch, grpo, export (artifacts), step (the last one), scale (alpha / rank), max_tokens. The
answer, with differences of weights as shares of a tensor's largest: whether the exported names are those of
the fetched model; the number of adapters; the largest difference of the shards' base from the fetched weights
and of the export from the sum; the smallest change by adapters; and by how much the adapters change the
probabilities of the last step's completions.
"""

import json
import sys
from pathlib import Path

import torch
from oracle import logprobs, read_completions, read_shards
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

PREFIX = "base_model.model."


def merge(weights, scale):
    """Return base weights and updates by the names of the model without adapters."""
    names = {name.removeprefix(PREFIX): value.float() for name, value in weights.items()}
    base = {name.replace(".base_layer", ""): value for name, value in names.items() if ".lora_" not in name}
    updates = {}
    for name, down in names.items():
        if ".lora_A." in name:
            up = names[name.replace(".lora_A.", ".lora_B.")]
            updates[name.replace(".lora_A.default", "")] = scale * up @ down
    return base, updates


def load(directory):
    return {
        name: tensor.float()
        for file in Path(directory).glob("*.safetensors")
        for name, tensor in load_file(file).items()
    }


def share(difference, tensor):
    return (difference.abs().max() / tensor.abs().max()).item()


@torch.no_grad()
def effect(request, weights):
    """Return the mean difference of the probabilities by the fetched model and by `weights`."""
    original, adapted = (
        AutoModelForCausalLM.from_pretrained(request["fetch"], dtype=torch.float32) for _ in range(2)
    )
    adapted.load_state_dict(weights, strict=False)  # the head is the embedding
    groups = read_completions(Path(request["grpo"]), request["step"], request["max_tokens"])
    differences = [
        logprobs(adapted, prompt, completion).exp() - logprobs(original, prompt, completion).exp()
        for group in groups
        for prompt, completion, *_ in group
    ]
    return torch.cat(differences).abs().mean().item()


def main(request):
    fetched, exported = load(request["fetch"]), load(request["export"])
    base, updates = merge(read_shards(Path(request["grpo"])), request["scale"])
    sums = {name: base[name] + updates.get(name, 0) for name in fetched}
    return {
        "names": exported.keys() == fetched.keys(),
        "adapters": len(updates),
        "base": max(share(base[name] - tensor, tensor) for name, tensor in fetched.items()),
        "difference": max(share(exported[name] - tensor, tensor) for name, tensor in sums.items()),
        "smallest_update": min(share(update, base[name]) for name, update in updates.items()),
        "effect": effect(request, sums),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(json.load(sys.stdin))))
