"""Rewards of completions by generated files, as verl's reward loop computes them.

`score.py ROWS FILE...`: ROWS is JSON of text, ground truth and length of each completion. All completions
arrive at once. The answer: a list of rewards for each file, which a process of its own has imported.
"""

import asyncio
import json
import multiprocessing
import sys
from types import SimpleNamespace

import torch
from verl.utils.import_utils import load_extern_object

rows, files = json.loads(sys.argv[1]), sys.argv[2:]


class Tokenizer:
    """A tokenizer whose id of a row's text is the row's number; the next id is that of the prompt."""

    def __init__(self):
        self.added_tokens_decoder = {}

    def decode(self, ids, skip_special_tokens):
        return [*(text for text, *_ in rows), "What is it?"][int(ids[0])] if ids else ""


def item(number, truth, length):
    responses = torch.full((length + 3,), number)
    mask = torch.cat([torch.ones(4), torch.ones(length), torch.zeros(3)])
    prompts = torch.full((4,), len(rows))
    batch = {"responses": responses, "attention_mask": mask, "prompts": prompts}
    values = {"reward_model": {"ground_truth": truth}, "extra_info": {"split": "train"}}
    values["global_steps"] = 1
    return SimpleNamespace(batch=batch, non_tensor_batch=values)


async def rewards(file):
    """Return the rewards of all rows."""
    manager = load_extern_object(file, "Rewards")({}, Tokenizer(), None)
    items = [item(number, truth, length) for number, (_, truth, length) in enumerate(rows)]
    done = await asyncio.gather(*(manager.run_single([each]) for each in items))
    return [each["reward_score"] for each in done]


def score(file):
    return asyncio.run(rewards(file))


if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        print(json.dumps(pool.map(score, files, chunksize=1)))
