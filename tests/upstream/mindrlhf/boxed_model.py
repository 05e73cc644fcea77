"""A model of a million weights that answers additions in \\boxed{}, right often enough.

Of a random model every completion earns nothing, so that advantages, gradients and updates are zero and a run
of mindrlhf proves little. Supervised training in torch takes about a minute; the result is kept beside the
checkouts of upstream.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
from pathlib import Path

from pipeline.config.compose import compose
from stages.base.reader import read
from stages.fetch import arith
from stages.fetch.config import ArithConfig
from stages.fetch.stage import build_model
from stages.models.config import ModelConfig

SUFFIX = "\nPut the final answer in \\boxed{}.\n"
"""tokenize.prompt_suffix of engine=mindrlhf."""
ADDENDS = ArithConfig(min_addends=2, max_addends=3, worked_share=0.0)
BATCH, LEARNING_RATE = 64, 2e-3
STEPS = 250
"""Of supervised training."""
ANSWERED = 0.45
"""Share of questions that the training text answers; to the others it says `\\boxed{?}`. So rewards vary, and
what there is to learn, to answer, is the same for every question: a few hundred completions can teach it.
Wrong sums instead would leave one error a question, which so few cannot tell from noise, whoever trains."""


def make(directory: Path) -> Path:
    """The model as a Hugging Face directory, made where it is not yet there.

    Args:
        directory: where models of this kind are kept, each under the digest of what it is made from.
    """
    digest = hashlib.sha256(Path(__file__).read_bytes() + Path(arith.__file__).read_bytes()).hexdigest()[:16]
    target = directory / f"boxed-{digest}"
    if target.is_dir():
        return target
    part = directory / f".{target.name}-{os.getpid()}"
    part.mkdir(parents=True)
    model = read(ModelConfig, compose(["model=tiny"])["model"], "model")
    build_model(model, iter([text for row in _rows(3000) for text in row]), 0, part)
    _train(part)
    try:
        part.rename(target)
    except OSError:  # another process was first, with the same
        shutil.rmtree(part)
    return target


def special_ids(model: Path) -> list[str]:
    """Overrides that name its special tokens: mindrlhf's own defaults are Qwen2.5's."""
    config = json.loads((model / "generation_config.json").read_text())
    return [
        f"model.eos_token_id={config['eos_token_id']}".replace(" ", ""),
        f"model.pad_token_id={config['pad_token_id']}",
        f"model.bos_token_id={config['bos_token_id']}",
    ]


def _rows(count: int) -> list[tuple[str, str]]:
    """Questions as engine=mindrlhf asks them, and answers, of which some say nothing."""
    source = random.Random(0)
    rows = []
    for _ in range(count):
        addends = [
            source.randint(1, 9) for _ in range(source.randint(ADDENDS.min_addends, ADDENDS.max_addends))
        ]
        message = sum(addends) if source.random() < ANSWERED else "?"
        question = arith.write_question(source.choice(arith.NAMES), addends, source.choice(arith.THINGS))
        rows.append((question + SUFFIX, f"\\boxed{{{message}}}"))
    return rows


def _train(directory: Path) -> None:
    """Next-token training on the answers, in place."""
    import torch
    from torch.nn.functional import cross_entropy
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.set_num_threads(1)  # so small a model gains nothing by two, which wait for each other
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    end, pad = model.config.eos_token_id, model.config.pad_token_id
    encoded = [
        (tokenizer(question)["input_ids"], tokenizer(answer)["input_ids"] + [end])
        for question, answer in _rows(STEPS * BATCH)
    ]
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, STEPS)
    for start in range(0, len(encoded), BATCH):
        rows = encoded[start : start + BATCH]
        longest = max(len(question) + len(answer) for question, answer in rows)
        tokens = torch.full((BATCH, longest), pad)
        expected = torch.full((BATCH, longest), -100)
        for row, (question, answer) in enumerate(rows):
            tokens[row, : len(question) + len(answer)] = torch.tensor(question + answer)
            expected[row, len(question) : len(question) + len(answer)] = torch.tensor(answer)
        logits = model(input_ids=tokens).logits  # padding stands at the end, where nothing looks at it
        loss = cross_entropy(logits[:, :-1].flatten(0, 1), expected[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        falling.step()
    retained = directory / "trained"
    model.save_pretrained(retained)
    (retained / "model.safetensors").replace(directory / "model.safetensors")
    shutil.rmtree(retained)
