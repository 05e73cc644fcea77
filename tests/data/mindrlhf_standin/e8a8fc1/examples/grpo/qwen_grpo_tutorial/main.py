"""The stand-in's entry; see tests/data/mindrlhf_standin/README.md."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[4]))

from standin import run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--config", required=True)
    parser.add_argument("--resume_training", action="store_true")
    parser.add_argument("--model_name")
    parser.add_argument("--tokenizer_type")
    parser.add_argument("--dataset_file")
    parser.add_argument("--tokenizer_dir")
    parser.add_argument("--actor_checkpoint_path")
    parser.add_argument("--ref_checkpoint_path")
    parser.add_argument("--generate_checkpoint_path")
    parser.add_argument("--verifier_function")
    parser.add_argument("--verifier_weight")
    parser.add_argument("--tensorboard")
    parser.add_argument("--save_checkpoint_dir")
    run(parser.parse_args())
