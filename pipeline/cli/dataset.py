"""`grpoflow tokenize` and `probe`: a dataset's prompts as MindRecord, and whether they can earn reward."""

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from pipeline import engines
from pipeline.cli.command import Commands, values_of
from pipeline.errors import ConfigError, Exit, Problem
from stages.base.reader import read
from stages.fetch.config import DatasetConfig
from stages.models.config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.tokenize.config import TokenizeConfig


def register(commands: Commands) -> None:
    """Add the tools on datasets."""
    parser = commands.add(
        "tokenize",
        tokenize,
        "write a file of questions, instructions, conversations or text as MindRecord",
        "--input F.jsonl --tokenizer DIR --out DIR dataset=gsm8k",
        "--input F.parquet --tokenizer DIR --out DIR tokenize=conversations",
        tidies=True,
    )
    parser.add_argument(
        "--input", type=Path, required=True, metavar="FILE", help=".jsonl, .json, .parquet; or text"
    )
    parser.add_argument("--tokenizer", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--sft", action="store_true", help="supervised examples of the questions too")

    question = "can the configured reward be earned at all? (exit 1: no)"
    commands.add("probe", probe, question, "dataset=gsm8k dataset.path=DIR", tidies=True)


def tokenize(options: Namespace) -> int:
    """Write one file of questions, instructions, conversations or text as MindRecord."""
    from stages.tokenize.stage import make_encoder, tokenize_path  # here and below: help need not load it

    values = values_of(options)
    dataset = read(DatasetConfig, values["dataset"], "dataset")
    config = read(TokenizeConfig, values["tokenize"], "tokenize")
    if options.sft and config.kind != "grpo":
        rule = f"is for questions with answers; tokenize.kind={config.kind} makes nothing else"
        raise ConfigError([Problem("--sft", None, rule, "leave it out")])
    encoder = make_encoder(options.tokenizer, None, dataset, config)
    cards = tokenize_path(encoder, options.input, options.out, sft=options.sft)
    print(json.dumps(cards, indent=1, default=asdict))
    return Exit.DONE


def probe(options: Namespace) -> int:
    """Tell whether the configured reward can be earned with this prompt and dataset."""
    from stages.rewards import probe as rewards

    values = values_of(options)
    dataset = read(DatasetConfig, values["dataset"], "dataset")
    config = read(TokenizeConfig, values["tokenize"], "tokenize")
    reward = read(RewardConfig, values["reward"], "reward")
    end = engines.of(values["engine"]["name"]).leftover(
        values["engine"], read(ModelConfig, values["model"], "model")
    )
    outcome = rewards.probe(dataset, config, reward, rewards.sample_rows(dataset, config, 0), end)
    print(json.dumps(outcome.to_json(), indent=1))
    return Exit.DONE if outcome.earnable else Exit.FAILED
