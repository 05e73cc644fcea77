"""Logits of an exported model and of the shards that it was merged from: `PYTHON logits.py SHARDS EXPORTED`.

It prints JSON: the largest logit, and the largest difference of the exported model from the shards, as they
are and rounded to bfloat16 like the merger does. Runs in verl's interpreter.
"""
# mypy: ignore-errors

import json
import sys
from pathlib import Path

import torch
import torch.distributed.tensor  # registers DTensor as safe to load
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = 64
ADAPTER = ".lora_A."


def read_shards(directory):
    """Return the complete weights; FSDP2 divides the first dimension."""
    files = sorted(
        directory.glob("model_world_size_*.pt"), key=lambda file: int(file.stem.rpartition("_")[2])
    )
    shards = [torch.load(file, map_location="cpu", weights_only=True) for file in files]
    local = [
        {name: getattr(value, "_local_tensor", value) for name, value in shard.items()} for shard in shards
    ]
    if len(local) == 1:
        return local[0]
    return {name: torch.cat([shard[name] for shard in local]) for name in local[0]}


def build(directory, state):
    """Return the model of the weights, in float32 and with LoRA's adapter added to them."""
    config = AutoConfig.from_pretrained(directory / "huggingface")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    modules = sorted({name.split(ADAPTER)[0].rpartition(".")[2] for name in state if ADAPTER in name})
    if modules:
        meta = json.loads((directory / "lora_train_meta.json").read_text())
        lora = LoraConfig(r=meta["r"], lora_alpha=meta["lora_alpha"], target_modules=modules)
        model = get_peft_model(model, lora)
    model.load_state_dict(state)
    return model.merge_and_unload() if modules else model


@torch.no_grad()
def logits(model):
    """Return the logits of TOKENS ids from the complete vocabulary."""
    ids = torch.linspace(0, model.config.vocab_size - 1, TOKENS).long()
    return model.eval()(input_ids=ids.unsqueeze(0)).logits


def main(shards, exported):
    """Print the result."""
    state = read_shards(shards)
    rounded = build(shards, {name: value.bfloat16().float() for name, value in state.items()})
    for parameter in rounded.parameters():
        parameter.data = parameter.data.bfloat16().float()  # the sum with an adapter is rounded again
    merged = logits(AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32))
    trained = logits(build(shards, state))
    result = {
        "largest": trained.abs().max().item(),
        "difference": (merged - trained).abs().max().item(),
        "rounded": (merged - logits(rounded)).abs().max().item(),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
