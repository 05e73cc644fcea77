"""Does an exported model load elsewhere and answer? Greedy answers to a few prompts.

transformers reads the directory as any user's program would; without it, the trainer's own model does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from stages.base.context import Context
from stages.base.errors import InputError
from stages.grpo.config import RolloutConfig
from stages.models.config import ModelConfig


@dataclass(frozen=True)
class ServeCheckConfig:
    """What is asked, and of which program."""

    program: Literal["transformers", "local"]
    """What loads the directory."""
    prompts: tuple[str, ...] | None
    """Questions as plain text; null: the first held-out prompts of the input `tokenize`, token by token."""
    count: int
    """How many of those."""


def run(context: Context) -> None:
    """Write answers.json: {"answers": [text, ...], "prompts": [text, ...]}.

    Raises:
        InputError: the directory does not load.
    """
    config = context.section(ServeCheckConfig, "serve_check")
    model, rollout = context.section(ModelConfig, "model"), context.section(RolloutConfig, "rollout")
    directory = context.inputs["model"]
    asked = _asked(directory, config, model, context.inputs)
    try:
        serve = _by_transformers if config.program == "transformers" else _by_ourselves
        answers = serve(directory, asked, model, rollout)
    except Exception as error:  # whatever a program raises that is not ours
        rule = f"does not load with {config.program}: {type(error).__name__}: {error}"
        raise InputError(directory, None, rule, "export it again") from error
    values = {"prompts": [text for text, _ in asked], "answers": answers}
    (context.output / "answers.json").write_text(json.dumps(values), encoding="utf-8")


def _asked(
    directory: Path, config: ServeCheckConfig, model: ModelConfig, inputs: Mapping[str, Path]
) -> list[tuple[str, list[int]]]:
    """Text and ids of each prompt."""
    from stages.tokenize.tokenizer import load

    if config.prompts is not None:
        tokenizer = load(directory)
        return [(text, tokenizer.encode(text).ids) for text in config.prompts]
    from stages.grpo.data import Vocabulary, read_prompts

    found = read_prompts(inputs["tokenize"] / "test.mindrecord", Vocabulary.of(directory, model))
    return [(found.texts[i], found.ids[i, : found.lengths[i]].tolist()) for i in range(config.count)]


def _by_transformers(
    directory: Path, asked: Sequence[tuple[str, list[int]]], model: ModelConfig, rollout: RolloutConfig
) -> list[str]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    load: Any = AutoModelForCausalLM.from_pretrained
    served = load(directory, local_files_only=True, dtype="auto").eval()
    texts = []
    for _, ids in asked:
        given = torch.tensor([ids])
        done = served.generate(
            given,
            attention_mask=torch.ones_like(given),
            do_sample=False,
            temperature=None,
            top_p=None,
            top_k=None,
            repetition_penalty=rollout.repetition_penalty,
            max_new_tokens=rollout.max_tokens,
        )
        texts.append(str(tokenizer.decode(done[0, len(ids) :], skip_special_tokens=True)))
    return texts


def _by_ourselves(
    directory: Path, asked: Sequence[tuple[str, list[int]]], model: ModelConfig, rollout: RolloutConfig
) -> list[str]:
    from stages.grpo import worker

    worker.start()
    from stages.grpo.data import Prompts, Vocabulary
    from stages.grpo.evaluate import complete, weights
    from stages.grpo.model import CausalLM
    from stages.grpo.parameters import fuse
    from stages.grpo.rollout import Decoder

    vocabulary = Vocabulary.of(directory, model)
    lengths = np.array([len(ids) for _, ids in asked], np.int32)
    padded = np.full((len(asked), lengths.max()), vocabulary.special.pad, np.int32)
    for row, (_, ids) in zip(padded, asked, strict=True):
        row[: len(ids)] = ids
    prompts = Prompts(padded, lengths, tuple(text for text, _ in asked), ("",) * len(asked))
    served = CausalLM(model, positions=padded.shape[1] + rollout.max_tokens)
    served.load(fuse(model, weights(directory, directory, model)))
    special = vocabulary.special
    decoder = Decoder(served, rollout, len(asked), 1, padded.shape[1], special.eos, special.pad)
    return complete(decoder, prompts, vocabulary, None)[0]
