"""Declarations of all stages: name, config sections, inputs, code version, entry point, required files.

The graph (pipeline/plan/graph.py, each engine's `stages`), the Luigi tasks and the stage processes read these
declarations. The module imports no stage, because a plan with nothing to do loads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from stages.base.graph import EXPORT_SECTIONS, RequiredFiles, Stage
from stages.base.layout import card_count

Config = Mapping[str, Any]

RESULT = "result.json"
HUGGING_FACE = ("config.json", "*.safetensors")


def _files(*patterns: str) -> RequiredFiles:
    return lambda config: patterns


def _tokenize_files(config: Config) -> tuple[str, ...]:
    if config["tokenize"]["kind"] != "grpo":  # examples for supervised training alone
        return RESULT, "sft.mindrecord", "sft.mindrecord.db"
    # Training data as MindRecord, or in Megatron's format for MindSpeed-RL.
    files = "train.mindrecord|*.idx", "train.mindrecord.db|*.bin"
    return (RESULT, "test.mindrecord", "test.mindrecord.db", *files)


def _strategy_files(config: Config) -> Iterator[str]:
    cards = card_count(config["layout"]["train"])
    return (f"train_strategy/ckpt_strategy_rank_{rank}.ckpt" for rank in range(cards))


def _split_files(config: Config) -> Iterator[str]:
    for role in config["split"]["roles"]:
        yield from _rank_files(role, config["layout"][role])


def _sft_files(config: Config) -> Iterator[str]:
    yield RESULT
    if "mindformers" in config:
        yield from HUGGING_FACE
    else:
        yield "metrics.jsonl"
        yield from (f"{role}/rank_0/model.safetensors" for role in ("train", "generate", "reference"))


def _grpo_files(config: Config) -> Iterator[str]:
    yield RESULT
    if config["engine"]["name"] == "local":
        yield from ("metrics.jsonl", "completions.jsonl")
    yield from _rank_files("train", config["layout"]["train"])


def _rank_files(directory: str, layout: Mapping[str, int]) -> Iterator[str]:
    return (f"{directory}/rank_{rank}/*" for rank in range(card_count(layout)))


FETCH = Stage(
    "fetch",
    sections=("model", "fetch"),
    summary="Model configuration, tokenizer and weights: downloaded, linked from a directory, or generated.",
    entry="stages.fetch.stage",
    required_files=_files(*HUGGING_FACE, "tokenizer.json"),
)
FETCH_DATASET = Stage(
    "fetch_dataset",
    sections=("dataset", "fetch"),
    summary="Questions with checkable answers: downloaded, linked from a directory, or generated.",
    entry="stages.fetch.dataset",
    required_files=_files(RESULT, "train*"),
)
CONVERT = Stage(
    "convert",
    sections=("model", "convert"),
    inputs={"fetch": "fetch"},
    summary="Weights under the engine's parameter names and in its format.",
    entry="stages.weights.convert",
    # An index (name_map.json) if no weights are copied; mcore/ is written by MindSpeed-LLM's converter.
    required_files=_files("name_map.json|*.safetensors|*.ckpt|mcore/*"),
)
TOKENIZE = Stage(
    "tokenize",
    sections=("model", "dataset", "tokenize"),
    inputs={"fetch": "fetch", "fetch_dataset": "fetch_dataset"},
    summary="Tokenized prompts as MindRecord files, or the files of the engine's own preprocessing.",
    entry="stages.tokenize.stage",
    required_files=_tokenize_files,
)
STRATEGY = Stage(
    "strategy",
    sections=("model", "layout"),
    summary="MindSpore strategy files of each role's layout, computed offline.",
    entry="stages.weights.strategy.stage",
    required_files=_strategy_files,
)
SPLIT = Stage(
    "split",
    sections=("model", "layout", "split"),
    inputs={"fetch": "fetch", "convert": "convert", "strategy": "strategy"},
    summary="Rank directories of the weights, split according to each role's layout.",
    entry="stages.weights.split",
    required_files=_split_files,
)
SFT = Stage(
    "sft",
    sections=("model", "sft", "engine", "seed"),
    inputs={"split": "split", "strategy": "strategy", "tokenize": "tokenize", "fetch": "fetch"},
    summary="Weights after supervised fine-tuning.",
    entry="stages.grpo.entry:sft",
    packages=("mindspore",),
    steps=lambda config: config["sft"]["steps"],
    required_files=_sft_files,
    version=2,
)
GRPO = Stage(
    "grpo",
    sections=("model", "layout", "rollout", "reward", "train", "engine", "seed"),
    inputs={"weights": "split", "strategy": "strategy", "tokenize": "tokenize", "fetch": "fetch"},
    summary="Policy weights after GRPO, with metrics and checkpoints.",
    entry="stages.grpo.entry:grpo",
    packages=("mindspore",),
    steps=lambda config: config["train"]["steps"],
    required_files=_grpo_files,
    version=4,
)
EVALUATE = Stage(
    "evaluate",
    sections=("model", "rollout", "reward", "evaluate", "seed"),
    inputs={"before": "split", "after": "grpo", "tokenize": "tokenize", "fetch": "fetch"},
    summary="Accuracy on held-out prompts before and after GRPO.",
    entry="stages.grpo.entry:evaluate",
    packages=("mindspore",),
    required_files=_files(RESULT, "samples.jsonl"),
    version=2,
)
EXPORT = Stage(
    "export",
    sections=EXPORT_SECTIONS,
    version=2,
    inputs={"grpo": "grpo", "evaluate": "evaluate", "tokenize": "tokenize", "fetch": "fetch"},
    summary="Trained model as a Hugging Face directory.",
    entry="stages.export.stage",
    required_files=_files(*HUGGING_FACE, "chat_template.jinja", "generation_config.json", "README.md"),
)
REPORT = Stage(
    "report",
    sections=("report",),
    summary="Report of the run as one HTML page.",
    entry="stages.report.stage",
    required_files=_files(RESULT, "index.html", "plotly.min.js"),
    version=4,
)

STAGES = {
    stage.name: stage
    for stage in (
        FETCH, FETCH_DATASET, CONVERT, TOKENIZE, STRATEGY, SPLIT, SFT, GRPO, EVALUATE, EXPORT, REPORT,
    )
}  # fmt: skip
"""Stage name -> declaration, in the order of the default graph."""
