"""Adapters of a checkpoint of verl, merged in plain torch; runs in verl's interpreter.

Request on stdin: directory (of the run), model, step, scale (alpha / rank), max_tokens. The answer: names of
changed base weights, number of adapters, the smallest change of a merged weight matrix, and by how much the
adapters change the probabilities of the completions of the next step.
"""

import json
import sys
from pathlib import Path

import torch
from oracle import checkpoint, logprobs, read_completions
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


@torch.no_grad()
def main(request):
    load = lambda: AutoModelForCausalLM.from_pretrained(request["model"], dtype=torch.float32)  # noqa: E731
    original, adapted = load(), load()
    directory, step = Path(request["directory"]), request["step"]
    base, updates = merge(checkpoint(directory, step), request["scale"])
    state = original.state_dict()
    changed = [name for name, value in base.items() if not torch.equal(value, state[name])]
    adapted.load_state_dict({name: value + updates.get(name, 0) for name, value in base.items()})
    file = directory / "rollouts" / f"{step + 1}.jsonl"
    rows = [row for group in read_completions(file, request["max_tokens"]) for row in group]
    effects = [
        logprobs(adapted, prompt, completion).exp() - logprobs(original, prompt, completion).exp()
        for prompt, completion, _ in rows
    ]
    return {
        "changed": changed,
        "adapters": len(updates),
        "smallest_update": min(update.abs().max().item() for update in updates.values()),
        "effect": torch.cat(effects).abs().mean().item(),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(main(json.load(sys.stdin))))
