"""Greedy completions by transformers; runs in verl's interpreter.

Request on stdin: model, prompts, max_tokens. The answer: the text of each completion without its end.
"""

import json
import sys

import torch
from prepare import ALPHABET
from transformers import AutoModelForCausalLM


@torch.no_grad()
def complete(model, prompt, max_tokens):
    ids, completion = [ALPHABET.index(character) for character in prompt], []
    while len(completion) < max_tokens:
        token = int(model(input_ids=torch.tensor([ids + completion])).logits[0, -1].argmax())
        if token == len(ALPHABET):
            break
        completion.append(token)
    return "".join(ALPHABET[token] for token in completion)


if __name__ == "__main__":
    torch.set_num_threads(1)
    request = json.load(sys.stdin)
    model = AutoModelForCausalLM.from_pretrained(request["model"], dtype=torch.float32)
    print(json.dumps([complete(model, prompt, request["max_tokens"]) for prompt in request["prompts"]]))
