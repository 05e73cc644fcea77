"""cli/convert_ckpt.py: between Hugging Face and Megatron."""

import argparse
import json
import os
from pathlib import Path

from standin_weights import MODEL, TRACKER, Parts, latest, read, write


def main():
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--load-model-type", choices=["hf", "mg"], required=True)
    for name in ("load-dir", "save-dir"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    for name in ("tensor", "pipeline"):
        parser.add_argument(f"--target-{name}-parallel-size", dest=name, type=int, default=1)
    parser.add_argument("--num-layer-list")
    arguments, _ = parser.parse_known_args()  # the network's form is the real converters' business
    (forth if arguments.load_model_type == "hf" else back)(arguments)
    for directory, _, names in os.walk(arguments.save_dir):  # as MindSpeed-LLM's, through links, too
        for name in names:
            os.chmod(os.path.join(directory, name), 0o640)
    print("INFO:root:Done!", flush=True)


def forth(arguments):
    config = json.loads((arguments.load_dir / "config.json").read_text())
    parts = Parts(config["num_hidden_layers"], arguments.tensor, arguments.pipeline, arguments.num_layer_list)
    for part, held in parts.deal(read(*arguments.load_dir.glob("*.safetensors"))).items():
        write(arguments.save_dir / "iter_0000001" / part / MODEL, held)
    (arguments.save_dir / TRACKER).write_text("1")


def back(arguments):
    if (arguments.tensor, arguments.pipeline) != (1, 1):
        raise ValueError("to Hugging Face only TP1 PP1")
    config = (arguments.save_dir / "config.json").read_text()  # --save-dir is the original model
    if arguments.num_layer_list:
        raise ValueError("num_layer_list: the checkpoint says it")
    tensors = read(*latest(arguments.load_dir)[0].glob(f"mp_rank_*/{MODEL}"))
    target = arguments.save_dir / "mg2hf"
    write(target / "model.safetensors", tensors)
    (target / "config.json").write_text(config)
