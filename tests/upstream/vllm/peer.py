"""Greedy answers by transformers, in vLLM's interpreter: `peer.py` with a JSON request on stdin.

The request has a directory, questions or prompt ids, max_tokens and ends. The last line that it prints has
the ids of prompts and answers.
"""

import json
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

if __name__ == "__main__":
    request = json.load(sys.stdin)
    model = AutoModelForCausalLM.from_pretrained(request["directory"], dtype=torch.float32).eval()
    prompts = request.get("prompts")
    if prompts is None:
        tokenizer = AutoTokenizer.from_pretrained(request["directory"])
        turns = [[{"role": "user", "content": question}] for question in request["questions"]]
        prompts = [
            tokenizer.apply_chat_template(turn, add_generation_prompt=True, return_dict=True)["input_ids"]
            for turn in turns
        ]
    answers = [[] for _ in prompts]
    by_length = {}
    for row, prompt in enumerate(prompts):
        by_length.setdefault(len(prompt), []).append(row)
    for rows in by_length.values():
        batch = torch.tensor([prompts[row] for row in rows])
        with torch.inference_mode():
            done = model.generate(
                batch, attention_mask=torch.ones_like(batch), do_sample=False, temperature=None, top_p=None,
                top_k=None, max_new_tokens=request["max_tokens"], eos_token_id=request["ends"],
                pad_token_id=request["ends"][0],
            )  # fmt: skip
        for row, ids in zip(rows, done[:, batch.shape[1] :].tolist(), strict=True):
            ends = [index for index, token in enumerate(ids) if token in request["ends"]]
            answers[row] = ids[: ends[0] + 1] if ends else ids
    print(json.dumps({"prompts": prompts, "answers": answers}))
