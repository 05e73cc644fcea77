"""Write a tiny model with a tokenizer of single characters, and prompts; runs in verl's interpreter.

Each token but the end is one character, so completions are recovered from the text that verl writes.
`prepare.py DIRECTORY SHAPE`; SHAPE is JSON with keys of Qwen3Config.
"""

import json
import string
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

ALPHABET = string.digits + string.ascii_lowercase + "+= \n"
END = "<|im_end|>"
"""verl/utils/tokenizer/continuous_token.py needs this token and the newline for models of Qwen."""


def write_tokenizer(directory):
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate([*ALPHABET, END])}, []))
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)
    fast.save_pretrained(directory)
    return fast


def write_model(directory, tokenizer, shape):
    torch.manual_seed(0)
    end = tokenizer.eos_token_id
    config = Qwen3Config(
        **shape, vocab_size=len(tokenizer), tie_word_embeddings=True, bos_token_id=None, eos_token_id=end,
        pad_token_id=end,
    )  # fmt: skip
    Qwen3ForCausalLM(config).save_pretrained(directory)


def write_prompts(file):
    rows = [{"question": f"{a}+{b}", "answer": str(a + b)} for a in range(8) for b in range(8)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    root = Path(sys.argv[1])
    write_model(root / "model", write_tokenizer(root / "model"), json.loads(sys.argv[2]))
    write_prompts(root / "prompts.jsonl")
