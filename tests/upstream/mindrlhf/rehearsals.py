"""Recipes that `grpoflow rehearse` must pass with mindrlhf itself, and their inputs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from pipeline.config.compose import compose
from stages.base.reader import read
from stages.fetch.stage import build_model
from stages.models.config import ModelConfig
from tests.upstream.mindrlhf.boxed_model import special_ids

QUESTIONS = [(f"Ann has {a} pens and {b} more. How many?", a + b) for a in range(1, 9) for b in range(1, 3)]
WITHOUT_VLLM = ("engine.use_vllm=0", "rollout.num_generations=4", "layout=dp1_mp2_pp2")
"""layout.generate is dp2 mp2."""
RECIPES: Mapping[str, tuple[str, ...]] = {
    "hf_safetensors": (),
    "hf_safetensors, two updates": ("train.num_iterations=2",),
    "hf_safetensors without vLLM": WITHOUT_VLLM,
    "ms_safetensors": ("engine.load_ckpt_format=ms_safetensors",),
    "ms_safetensors without vLLM": (*WITHOUT_VLLM, "engine.load_ckpt_format=ms_safetensors"),
    "ckpt without vLLM": (*WITHOUT_VLLM, "engine.load_ckpt_format=ckpt"),
    "ckpt without vLLM, two updates": (
        *WITHOUT_VLLM, "engine.load_ckpt_format=ckpt", "train.num_iterations=2",
    ),
    "two replicas": ("layout=dp2_mp2_pp1",),
    "32B on 32 cards": (
        "model=qwen2_5_32b", "model.path={inputs}/32b", "model.vocab_size=512", "layout=dp2_mp8_pp2",
        "launcher=ssh", "launcher.hosts=[a,b,c,d]",
    ),
    "a user's questions": (
        "dataset.path={inputs}/mine.jsonl", "dataset.columns.prompt=ask", "dataset.columns.answer=sum",
        "dataset.solution=answer", "dataset.test_rows=4",
    ),
}  # fmt: skip
"""Name -> overrides added to those of `overrides`."""


def write_inputs(directory: Path) -> list[str]:
    """Write questions, tokenizers and config.json; return overrides of a run that reads them."""
    data, model, large = directory / "data", directory / "model", directory / "32b"
    for made in (data, model, large):
        made.mkdir(parents=True)
    rows = [{"question": text, "answer": f"Both: #### {total}"} for text, total in QUESTIONS]
    for name in ("train", "test"):
        _write_rows(data / f"{name}.jsonl", rows)
    _write_rows(directory / "mine.jsonl", [{"ask": text, "sum": str(total)} for text, total in QUESTIONS])
    values = compose(["model=tiny", "model.max_position_embeddings=2048"])["model"]
    message = [f"So. The answer is \\boxed{{{total}}}." for _, total in QUESTIONS]
    texts = [*message, *(question for question, _ in QUESTIONS)]
    build_model(read(ModelConfig, values, "model"), iter(texts), 0, model)
    (model / "model.safetensors").unlink()  # a rehearsal needs no weights
    shutil.copytree(model, large, dirs_exist_ok=True)
    shape = compose(["model=qwen2_5_32b"])["model"]
    config = json.loads((model / "config.json").read_text())
    config |= {key: shape[key] for key in config.keys() & shape.keys() - {"vocab_size"}}
    (large / "config.json").write_text(json.dumps(config))
    return [
        "engine=mindrlhf", "model=tiny", "model.source=local", f"model.path={model}", *special_ids(model),
        "model.max_position_embeddings=2048", "dataset=gsm8k", f"dataset.path={data}", "layout=dp1_mp2_pp1",
        "train.prompts_per_step=8", "train.checkpoint_every=5", "tokenize.max_prompt_length=200",
        f"store={directory / 'store'}",
    ]  # fmt: skip


def _write_rows(file: Path, rows: list[dict[str, str]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def overrides(name: str, inputs: Path) -> list[str]:
    """Return what a recipe adds to the overrides of `write_inputs` in `inputs`."""
    return [override.format(inputs=inputs) for override in RECIPES[name]]
