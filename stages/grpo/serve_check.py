"""Greedy answers of an exported model by other inference programs, and the held-out questions to ask."""

from pathlib import Path
from typing import Any

from stages.fetch.config import DatasetConfig
from stages.fetch.records import Row
from stages.grpo.config import RolloutConfig
from stages.tokenize.config import TokenizeConfig
from stages.tokenize.source import splits, written_rows
from stages.tokenize.text import columns

BATCH = 64  # prompts that transformers answers at once


def held_out(fetched: Path, tokenized: Path, dataset: DatasetConfig, config: TokenizeConfig) -> list[Row]:
    """Return the held-out rows that tokenize has not dropped."""
    _, test = splits(fetched, dataset, columns(dataset, config))
    return list(written_rows(test, tokenized / "test.mindrecord"))


def ask_transformers(directory: Path, questions: list[str], rollout: RolloutConfig) -> list[str]:
    """Answer through the directory's chat template, if it has one, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(directory, local_files_only=True, padding_side="left")
    load: Any = AutoModelForCausalLM.from_pretrained
    model = load(directory, local_files_only=True, dtype="auto").eval()
    has_template = tokenizer.chat_template is not None
    if has_template:
        turns = [[{"role": "user", "content": question}] for question in questions]
        questions = tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    answers: list[str] = []
    for start in range(0, len(questions), BATCH):
        batch = tokenizer(
            questions[start : start + BATCH], add_special_tokens=not has_template, padding=True,
            return_token_type_ids=False, return_tensors="pt",
        )  # fmt: skip
        with torch.inference_mode():
            done = model.generate(
                **batch, do_sample=False, temperature=None, top_p=None, top_k=None, min_p=None,
                repetition_penalty=rollout.repetition_penalty, max_new_tokens=rollout.max_tokens,
            )  # fmt: skip
        answers += tokenizer.batch_decode(done[:, batch["input_ids"].shape[1] :], skip_special_tokens=True)
    return answers


def ask_vllm(directory: Path, questions: list[str], rollout: RolloutConfig) -> list[str]:
    """Answer through the directory's chat template by vLLM."""
    from vllm import LLM, SamplingParams

    greedy = SamplingParams(
        temperature=0.0, repetition_penalty=rollout.repetition_penalty, min_tokens=rollout.min_tokens,
        max_tokens=rollout.max_tokens,
    )  # fmt: skip
    turns = [[{"role": "user", "content": question}] for question in questions]
    return [output.outputs[0].text for output in LLM(model=str(directory)).chat(turns, greedy)]
