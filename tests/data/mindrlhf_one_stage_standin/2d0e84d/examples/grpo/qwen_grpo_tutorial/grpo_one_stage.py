"""The stand-in's entry; see README.md of its parent directory."""

import argparse
import sys
from pathlib import Path

from mindrlhf.configs.grpo_configs import GRPOConfig

HOME = Path(__file__).parents[3]
sys.path.insert(0, str(HOME.parent))

from one_stage import run  # noqa: E402

if __name__ == "__main__":
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--sft_path_infer", required=True)
    parser.add_argument("--sft_path_train", required=True)
    parser.add_argument("--vocab_path", required=True)
    parser.add_argument("--merges_file_path", required=True)
    parser.add_argument("--save_data_file")
    parser.add_argument("--mind_dataset_dir", required=True)
    parser.add_argument("--save_ckpt_dir", default="./")
    parser.add_argument("--use_parallel", default=False)
    parser.add_argument("--load_sft_checkpoint_infer")
    parser.add_argument("--load_sft_checkpoint_train")
    parser.add_argument("--load_ref_checkpoint")
    parser.add_argument("--enable_compile_cache", default=False)
    parser.add_argument("--pre_num_generations", type=int, default=1)
    parser.add_argument("--pre_store_data", type=int, default=16)
    run(parser.parse_args(), GRPOConfig())
