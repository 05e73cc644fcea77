"""Does an exported model load elsewhere and answer? Its own chat template asks, greedily.

transformers or vLLM read the directory as any user's program would; without them, the trainer's own model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stages.base.context import Context
from stages.base.errors import InputError
from stages.fetch.config import TEMPLATE, DatasetConfig
from stages.fetch.jsonl import Row
from stages.grpo.config import RolloutConfig
from stages.models.config import ModelConfig
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.source import DROPPED

TEST = "test.mindrecord"
BATCH = 64
"""Prompts that transformers are given at once."""


@dataclass(frozen=True)
class ServeCheckConfig:
    """Settings of serve-check: the questions and the program to send them to."""

    program: Literal["transformers", "vllm", "local"]
    """Program that loads the directory."""
    prompts: tuple[str, ...] | None
    """Questions as plain text; null: the first held-out ones, of the inputs fetch_dataset and tokenize."""
    count: int | None
    """Number of these questions; null for all."""


def run(context: Context) -> None:
    """Write answers.json: {"prompts": [text, ...], "answers": [text, ...]}; of held-out ones `right`, too.

    `right` is how many answers are, as evaluate counts; `otherwise` how many prompts have other ids through
    the template than in training's records (cut ones, and those that spell special tokens).

    Raises:
        InputError: the directory does not load.
    """
    config = context.section(ServeCheckConfig, "serve_check")
    model, rollout = context.section(ModelConfig, "model"), context.section(RolloutConfig, "rollout")
    directory = context.inputs["model"]
    held_out = config.prompts is None
    questions = list(config.prompts or ()) or _questions(context, config.count)
    try:
        serve = {"transformers": _by_transformers, "vllm": _by_vllm, "local": _by_ourselves}[config.program]
        prompts, answers = serve(directory, questions, model, rollout)
    except Exception as error:  # whatever a program raises that is not ours
        rule = f"does not load with {config.program}: {type(error).__name__}: {error}"
        raise InputError(directory, None, rule, "export it again") from error
    values: dict[str, Any] = {"prompts": questions, "answers": answers}
    if held_out:
        values |= _judged(context, prompts, answers)
    (context.output / "answers.json").write_text(json.dumps(values), encoding="utf-8")


def _questions(context: Context, count: int | None) -> list[str]:
    """Return the questions of the held-out MindRecord's rows; rows that tokenize dropped are not included."""
    from stages.tokenize.stage import both_splits
    from stages.tokenize.text import columns

    dataset = context.section(DatasetConfig, "dataset")
    read = columns(dataset, context.section(TokenizeConfig, "tokenize"))
    _, _, files, rows_of = both_splits(context.inputs["fetch_dataset"], dataset, read)
    ledger = context.inputs["tokenize"] / f"test{DROPPED}"
    lines = ledger.read_text(encoding="utf-8").splitlines() if ledger.is_file() else []
    dropped = {(entry["source"], entry["line"]) for entry in map(json.loads, lines)}
    questions: list[str] = []
    for file in files:
        for row in rows_of(file):
            if len(questions) == count:
                return questions
            if isinstance(row, Row) and (file.name, row.line) not in dropped:
                questions.append(row.prompt)
    return questions


def _judged(context: Context, prompts: Sequence[Sequence[int]], answers: list[str]) -> dict[str, int]:
    from stages.grpo.data import Vocabulary, read_prompts
    from stages.rewards.functions import accuracy_reward

    vocabulary = Vocabulary.of(context.inputs["model"], context.section(ModelConfig, "model"))
    known = read_prompts(context.inputs["tokenize"] / TEST, vocabulary)
    rows = range(min(len(known), len(answers)))
    right = accuracy_reward([answers[i] for i in rows], [known.solutions[i] for i in rows])
    same = sum(list(prompts[i]) == known.ids[i, : known.lengths[i]].tolist() for i in rows)
    return {"right": sum(value > 0 for value in right), "asked": len(rows), "otherwise": len(rows) - same}


def differs(right: int, total: int, expected: float) -> bool:
    """Return True if an accuracy is more than two standard errors away from the expected one.

    The error is that of `asked` answers, with two right and two wrong ones added (Agresti and Coull 1998),
    so that one answer that 16-bit arithmetic tips is no failure where evaluate saw none or all right.
    """
    share = (expected * total + 2) / (total + 4)
    return abs(right / total - expected) > 2 * math.sqrt(share * (1 - share) / (total + 4))


Served = tuple[list[list[int]], list[str]]
"""Ids of each prompt, and its answer."""


def _turns(question: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": question}]


def _by_transformers(
    directory: Path, questions: Sequence[str], model: ModelConfig, rollout: RolloutConfig
) -> Served:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    load: Any = AutoModelForCausalLM.from_pretrained
    served = load(directory, local_files_only=True, dtype="auto").eval()
    tokenizer.padding_side = "left"
    prompts: list[list[int]] = []
    answers: list[str] = []
    for question in questions:
        if tokenizer.chat_template is None:
            prompts.append(tokenizer(question)["input_ids"])
        else:
            turns = _turns(question)
            prompts.append(
                tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
            )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    for start in range(0, len(prompts), BATCH):
        batch = tokenizer.pad({"input_ids": prompts[start : start + BATCH]}, return_tensors="pt")
        with torch.inference_mode():
            done = served.generate(
                **batch, do_sample=False, temperature=None, top_p=None, top_k=None, min_p=None,
                repetition_penalty=rollout.repetition_penalty, max_new_tokens=rollout.max_tokens,
            )  # fmt: skip
        answers += tokenizer.batch_decode(done[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return prompts, answers


def _by_vllm(directory: Path, questions: Sequence[str], model: ModelConfig, rollout: RolloutConfig) -> Served:
    from vllm import LLM, SamplingParams

    penalty, most = rollout.repetition_penalty, rollout.max_tokens
    greedy = SamplingParams(temperature=0.0, repetition_penalty=penalty, max_tokens=most)
    done = LLM(model=str(directory)).chat([_turns(question) for question in questions], greedy)
    return [list(output.prompt_token_ids) for output in done], [output.outputs[0].text for output in done]


def _by_ourselves(
    directory: Path, questions: Sequence[str], model: ModelConfig, rollout: RolloutConfig
) -> Served:
    from stages.grpo import worker

    worker.start()
    from stages.grpo.data import Prompts, Vocabulary
    from stages.grpo.evaluate import complete, weights
    from stages.grpo.model import CausalLM
    from stages.grpo.parameters import fuse
    from stages.grpo.rollout import Decoder

    vocabulary = Vocabulary.of(directory, model)
    rendered = _rendered(directory, vocabulary.tokenizer, questions)
    lengths = np.array([len(ids) for ids in rendered], np.int32)
    padded = np.full((len(rendered), lengths.max()), vocabulary.special.pad, np.int32)
    for row, ids in zip(padded, rendered, strict=True):
        row[: len(ids)] = ids
    prompts = Prompts(padded, lengths, tuple(questions), ("",) * len(rendered))
    served = CausalLM(model, positions=padded.shape[1] + rollout.max_tokens)
    served.load(fuse(model, weights(directory, directory, model)))
    special = vocabulary.special
    rows = min(len(rendered), BATCH)
    decoder = Decoder(served, rollout, rows, 1, padded.shape[1], special.eos, special.pad)
    return rendered, complete(decoder, prompts, vocabulary, None)[0]


def _rendered(directory: Path, tokenizer: Any, questions: Sequence[str]) -> list[list[int]]:
    """Ids through the directory's own template; of one that has none, those of the bare text."""
    from stages.tokenize.chat import ChatTemplate, named_tokens
    from stages.tokenize.text import Turn
    from stages.tokenize.tokenizer import read_json

    file = directory / TEMPLATE
    if not file.is_file():
        return [tokenizer.encode(question).ids for question in questions]
    tokens = named_tokens(read_json(directory / "tokenizer_config.json"))
    template = ChatTemplate(
        file.read_text(encoding="utf-8"), {}, file, tokens
    )  # as transformers: nothing guarded
    texts = [template.render([Turn("user", question)], generation=True) for question in questions]
    return [entry.ids for entry in tokenizer.encode_batch(texts, add_special_tokens=False)]
