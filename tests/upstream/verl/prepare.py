"""Write a tiny model with a tokenizer of single characters, and prompts; runs in verl's interpreter.

Each token but the end is one character, so completions are recovered from the text that verl writes.
"""

import string
import sys
from pathlib import Path

import pandas
import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

ALPHABET = string.digits + string.ascii_lowercase + "+= \n"
END = "<|im_end|>"
"""verl/utils/tokenizer/continuous_token.py needs this token and the newline for models of Qwen."""
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}={% endif %}"


def write_tokenizer(directory):
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate([*ALPHABET, END])}, []))
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)
    return fast


def write_model(directory, tokenizer):
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)


def write_prompts(file):
    sums = [(a, b) for a in range(8) for b in range(8)]
    rows = [
        {
            "data_source": "arith",
            "prompt": [{"role": "user", "content": f"{a}+{b}"}],
            "reward_model": {"style": "rule", "ground_truth": str(a + b)},
            "extra_info": {"index": index},
        }
        for index, (a, b) in enumerate(sums)
    ]
    pandas.DataFrame(rows).to_parquet(file)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    write_model(root / "model", write_tokenizer(root / "model"))
    write_prompts(root / "prompts.parquet")
