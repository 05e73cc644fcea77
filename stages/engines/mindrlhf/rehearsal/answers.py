"""Completions that ought to earn the reward: the dataset's own answers, said as the reward wants them."""

import json
from pathlib import Path

from stages.base.context import Context
from stages.engines.mindformers.rehearsal.shim import Ids
from stages.fetch.jsonl import Row
from stages.models.config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.rewards.probe import answers
from stages.rewards.score import score_each
from stages.tokenize.records import read_columns
from stages.tokenize.tokenizer import load

Answer = tuple[list[int], list[int]]
FILE = "answers.json"


def run(context: Context) -> None:
    """Write FILE: known_answers of `tokenize` and `fetch`. MindSpore wants a process of its own."""
    ids = context.section(ModelConfig, "model").token_ids
    reward = context.section(RewardConfig, "reward")
    records = context.inputs["tokenize"] / "train.mindrecord"
    pairs = known_answers(records, context.inputs["fetch"], reward, ids.eos, ids.pad)
    (context.output / FILE).write_text(json.dumps(pairs), encoding="utf-8")


def known_answers(records: Path, tokenizer: Path, reward: RewardConfig, eos: Ids, pad: int) -> list[Answer]:
    """(prompt ids, completion ids) of every row that mindrlhf will read.

    Args:
        records: train.mindrecord: prompt_ids, and pretrain_ids with the ground truth.
        tokenizer: directory of the tokenizer.
        reward: decides which way of answering is taken, by our own functions.
        eos: ids that end a completion; vLLM returns the one that ended it.
        pad: fills rows up.
    """
    loaded = load(tokenizer)
    columns = read_columns(records, ["prompt_ids", "pretrain_ids"])
    pairs = []
    for prompt, truth in zip(columns["prompt_ids"], columns["pretrain_ids"], strict=True):
        solution = loaded.decode([int(number) for number in truth if number != pad])
        completion = loaded.encode(best_answer(solution, reward)).ids
        pairs.append(([int(number) for number in prompt if number != pad], [*completion, eos[0]]))
    return pairs


def best_answer(solution: str, reward: RewardConfig) -> str:
    """Return the form of an answer that our reward functions pay most."""
    ways = [way for way in (*answers(Row(0, "", ""), solution).values(), solution) if way]
    parts = score_each(reward, ways, [solution] * len(ways), [0] * len(ways)).parts
    weights = dict(zip(reward.functions, reward.weights, strict=True))
    totals = [sum(weights[name] * parts[name][way] for name in weights) for way in range(len(ways))]
    return ways[totals.index(max(totals))]
