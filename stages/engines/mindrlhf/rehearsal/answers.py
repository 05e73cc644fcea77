"""Completions that should earn the reward: the dataset's own answers, in the form that the reward expects.

vLLM's replacement reads them from FILE (stages/engines/mindformers/rehearsal/on_path).
"""

import json

from stages.base.context import Context
from stages.fetch.records import Row
from stages.models.config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.rewards.probe import answers
from stages.rewards.score import score_each
from stages.tokenize.records import read_columns
from stages.tokenizer import load

FILE = "answers.json"


def run(context: Context) -> None:
    """Write FILE from the artifacts of `tokenize` and `fetch`; runs in a process of its own for MindSpore.

    It has the ids of prompt and best completion for every row. The completion has the token that ends it, as
    vLLM returns it.
    """
    ids = context.section(ModelConfig, "model").token_ids
    reward, tokenizer = context.section(RewardConfig, "reward"), load(context.inputs["fetch"])
    file = context.inputs["tokenize"] / "train.mindrecord"
    columns, pairs = read_columns(file, ["prompt_ids", "pretrain_ids"]), []
    for prompt, truth in zip(columns["prompt_ids"], columns["pretrain_ids"], strict=True):
        solution = tokenizer.decode(truth[truth != ids.pad].tolist())
        completion = tokenizer.encode(best_answer(solution, reward)).ids
        pairs.append((prompt[prompt != ids.pad].tolist(), [*completion, ids.eos[0]]))
    (context.output / FILE).write_text(json.dumps({"answers": pairs}), encoding="utf-8")


def best_answer(solution: str, reward: RewardConfig) -> str:
    """Return the form of an answer with the highest reward."""
    forms = [form for form in (*answers(Row(0, "", ""), solution).values(), solution) if form]
    parts = score_each(reward, forms, [solution] * len(forms), [0] * len(forms)).parts
    weights = dict(zip(reward.functions, reward.weights, strict=True))
    totals = [sum(weights[name] * parts[name][form] for name in weights) for form in range(len(forms))]
    return forms[totals.index(max(totals))]
