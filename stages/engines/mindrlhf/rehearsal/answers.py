"""Completions that should earn the reward: the dataset's own answers, in the form that the reward expects.

vLLM's replacement reads them from FILE (stages/engines/mindformers/rehearsal/on_path).
"""

import json
from collections.abc import Sequence
from pathlib import Path

from stages.base.context import Context
from stages.fetch.jsonl import Row
from stages.models.config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.rewards.probe import answers
from stages.rewards.score import score_each
from stages.tokenize.records import read_columns
from stages.tokenizer import load

Answer = tuple[list[int], list[int]]
"""Prompt ids and completion ids."""
FILE = "answers.json"


def run(context: Context) -> None:
    """Write FILE from the artifacts of `tokenize` and `fetch`; runs in a process of its own for MindSpore."""
    ids = context.section(ModelConfig, "model").token_ids
    reward = context.section(RewardConfig, "reward")
    records = context.inputs["tokenize"] / "train.mindrecord"
    pairs = known_answers(records, context.inputs["fetch"], reward, ids.eos, ids.pad)
    (context.output / FILE).write_text(json.dumps({"answers": pairs}), encoding="utf-8")


def known_answers(
    records: Path, tokenizer: Path, reward: RewardConfig, eos: Sequence[int], pad: int
) -> list[Answer]:
    """Return prompt and best completion for every row of train.mindrecord; vLLM returns the ending token."""
    loaded = load(tokenizer)
    columns = read_columns(records, ["prompt_ids", "pretrain_ids"])
    pairs = []
    for prompt, truth in zip(columns["prompt_ids"], columns["pretrain_ids"], strict=True):
        solution = loaded.decode([int(number) for number in truth if number != pad])
        completion = loaded.encode(best_answer(solution, reward)).ids
        pairs.append(([int(number) for number in prompt if number != pad], [*completion, eos[0]]))
    return pairs


def best_answer(solution: str, reward: RewardConfig) -> str:
    """Return the form of an answer with the highest reward."""
    forms = [form for form in (*answers(Row(0, "", ""), solution).values(), solution) if form]
    parts = score_each(reward, forms, [solution] * len(forms), [0] * len(forms)).parts
    weights = dict(zip(reward.functions, reward.weights, strict=True))
    totals = [sum(weights[name] * parts[name][form] for name in weights) for form in range(len(forms))]
    return forms[totals.index(max(totals))]
