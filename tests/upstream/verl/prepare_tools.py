"""Write a tiny model that calls the function `add`, and prompts; runs in verl's interpreter.

Tokens are single characters, and a few for the parts of a call. The model is trained on conversations until
it calls the function, mostly with wrong numbers: a model with random weights would never call it.
`prepare_tools.py DIRECTORY SHAPE TOOLS`; SHAPE is JSON with keys of Qwen3Config, TOOLS the functions as JSON.
"""

import json
import random
import string
import sys
from pathlib import Path

import torch
from prepare import write_prompts
from prepare_template import TEMPLATE
from tokenizers import AddedToken, Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

START, END = "<|im_start|>", "<|im_end|>"
PARTS = (
    "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>",
    '{"name": "add", "arguments": {"a": ', ', "b": ', "}}",
)  # fmt: skip
"""Texts of one token each, besides single characters."""
CHARACTERS = string.digits + string.ascii_letters + string.punctuation + " \n"
STEPS, BATCH = 140, 16


def write_tokenizer(directory):
    texts = [*CHARACTERS, *PARTS, START, END]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(texts)}, []))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_tokens([AddedToken(part, normalized=False) for part in PARTS])
    tokenizer.add_special_tokens([START, END])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=END)
    fast.chat_template = TEMPLATE
    fast.save_pretrained(directory)
    return fast


def conversation(tokenizer, tools, rng):
    """Return the ids of a conversation with one call, and which of them the assistant wrote."""
    a, b = rng.randrange(8), rng.randrange(8)
    question = [{"role": "user", "content": f"{a}+{b}="}]
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": a, "b": b}}}
    asked = [*question, {"role": "assistant", "content": "", "tool_calls": [call]}]
    answered = [*asked, {"role": "tool", "content": str(a + b)}]
    ended = [*answered, {"role": "assistant", "content": str(a + b)}]

    def ids(messages, generation=False):
        text = tokenizer.apply_chat_template(
            messages, tools=tools, add_generation_prompt=generation, tokenize=False
        )
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    cuts = [len(ids(question, True)), len(ids(asked)) - 1, len(ids(answered, True)), len(ids(ended)) - 1]
    whole = ids(ended)
    return whole, [cuts[0] <= at < cuts[1] or cuts[2] <= at < cuts[3] for at in range(len(whole))]


def write_model(directory, tokenizer, shape, tools):
    torch.manual_seed(0)
    rng, end = random.Random(0), tokenizer.eos_token_id
    config = Qwen3Config(
        **shape, vocab_size=len(tokenizer), tie_word_embeddings=True, bos_token_id=None, eos_token_id=end,
        pad_token_id=end,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(STEPS):
        rows = [conversation(tokenizer, tools, rng) for _ in range(BATCH)]
        length = max(len(ids) for ids, _ in rows)
        inputs = torch.full((BATCH, length), end)
        labels = torch.full((BATCH, length), -100)
        for row, (ids, learnt) in enumerate(rows):
            inputs[row, : len(ids)] = torch.tensor(ids)
            kept = [token if mine else -100 for token, mine in zip(ids, learnt, strict=True)]
            labels[row, : len(ids)] = torch.tensor(kept)
        loss = model(input_ids=inputs, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.save_pretrained(directory)


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    shape, tools = json.loads(sys.argv[2]), json.loads(sys.argv[3])
    write_model(root / "model", write_tokenizer(root / "model"), shape, tools)
    write_prompts(root / "prompts.jsonl")
