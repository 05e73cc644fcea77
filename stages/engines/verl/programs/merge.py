"""Merging of LoRA's shards: `PYTHON merge.py ARGUMENTS`, with verl.model_merger's arguments, TARGET the last.

verl.model_merger writes the base model to TARGET and the adapter to TARGET/lora_adapter. peft then adds the
adapter to the weights, in float32, and TARGET gets the sum in bfloat16. Runs in verl's interpreter.
"""
# mypy: ignore-errors

import runpy
import sys
from pathlib import Path

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

if __name__ == "__main__":
    target = Path(sys.argv[-1])
    runpy.run_module("verl.model_merger", run_name="__main__")
    base = AutoModelForCausalLM.from_pretrained(target, dtype=torch.float32)
    merged = PeftModel.from_pretrained(base, target / "lora_adapter").merge_and_unload()
    merged.to(torch.bfloat16).save_pretrained(target)
