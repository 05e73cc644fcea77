"""convert_ckpt.py of both checkouts: between Hugging Face and Megatron."""

import argparse
import json
import os
from pathlib import Path

from standin_weights import KINDS, MODEL, TRACKER, Parts, gather, latest, write


def main(newer):
    """newer: MindSpeed-LLM's of 05a90d7; else the one inside the earlier window."""
    first = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    first.add_argument("--load-model-type", choices=["hf", "mg"], required=True)
    load = first.parse_known_args()[0].load_model_type
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--load-model-type", choices=["hf", "mg"], required=True)
    parser.add_argument("--save-model-type", choices=["mg", "hf"], required=True)
    parser.add_argument("--model-type", choices=["GPT"], required=True)
    parser.add_argument("--model-type-hf", choices=["llama2"], default="llama2")
    parser.add_argument("--use-mcore-models", action="store_true")
    parser.add_argument("--add-qkv-bias", action="store_true")
    parser.add_argument("--params-dtype", choices=sorted(KINDS), default="fp16")
    for name in ("load-dir", "save-dir"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("tensor", "pipeline"):
        parser.add_argument(f"--target-{name}-parallel-size", dest=name, type=int, default=1)
    parser.add_argument("--num-layer-list")
    if load == "hf":
        parser.add_argument("--tokenizer-model", type=Path, required=True)
    arguments = parser.parse_args()
    if not (arguments.use_mcore_models and arguments.add_qkv_bias):
        parser.error("Qwen2.5 needs --use-mcore-models and --add-qkv-bias")
    if load == arguments.save_model_type:
        parser.error("nothing to convert")
    (forth if load == "hf" else back)(arguments, newer)
    if newer:  # as MindSpeed-LLM's update_save_checkpoint_chmod, through links, too
        for directory, _, names in os.walk(arguments.save_dir):
            for name in names:
                os.chmod(os.path.join(directory, name), 0o640)
    print("INFO:root:Done!", flush=True)


def forth(arguments, newer):
    if not arguments.tokenizer_model.is_file():
        raise FileNotFoundError(arguments.tokenizer_model)
    config = json.loads((arguments.load_dir / "config.json").read_text())
    kind, tensors = gather(sorted(arguments.load_dir.glob("*.safetensors")))
    assert kind == KINDS[arguments.params_dtype], (kind, arguments.params_dtype)
    parts = Parts(config["num_hidden_layers"], arguments.tensor, arguments.pipeline, arguments.num_layer_list)
    for part, held in parts.deal(tensors).items():
        write(arguments.save_dir / "iter_0000001" / part / MODEL, kind, held)
    (arguments.save_dir / TRACKER).write_text("1")


def back(arguments, newer):
    if (arguments.tensor, arguments.pipeline) != (1, 1):
        raise ValueError("to Hugging Face only TP1 PP1")
    config = json.loads((arguments.save_dir / "config.json").read_text())  # --save-dir is the original model
    if not newer and arguments.num_layer_list:
        raise ValueError("num_layer_list: the checkpoint says it")
    kind, tensors = gather(sorted(latest(arguments.load_dir)[0].glob(f"mp_rank_*/{MODEL}")))
    dtype = {"bfloat16": "BF16", "float16": "F16"}.get(config.get("torch_dtype"), "F32")  # no other key
    assert kind == dtype, (kind, dtype)
    target = arguments.save_dir / os.environ.get("STANDIN_BACK", "mg2hf")
    write(target / "model.safetensors", kind, tensors)
    os.chmod(target / "model.safetensors", 0o600)  # as transformers' save_pretrained leaves it
    (target / "config.json").write_text(json.dumps(config))
