"""`grpoflow probe`."""

from __future__ import annotations

import json
from argparse import Namespace

from pipeline.cli.command import Commands, values_of
from pipeline.errors import Exit
from pipeline.plan.reward_check import leftover
from stages.config import read
from stages.fetch.config import DatasetConfig
from stages.model_config import ModelConfig
from stages.rewards import probe as rewards
from stages.rewards.config import RewardConfig
from stages.tokenize.config import TokenizeConfig


def register(commands: Commands) -> None:
    """It has no options of its own."""
    commands.add(
        "probe",
        probe,
        "can the configured reward be earned at all? (exit 1: no)",
        "dataset=gsm8k dataset.path=DIR",
        tidies=True,
    )


def probe(options: Namespace) -> int:
    """Whether the configured reward can be earned with this prompt and dataset."""
    values = values_of(options)
    dataset = read(DatasetConfig, values["dataset"], "dataset")
    config = read(TokenizeConfig, values["tokenize"], "tokenize")
    reward = read(RewardConfig, values["reward"], "reward")
    end = leftover(values["engine"], read(ModelConfig, values["model"], "model"))
    found = rewards.probe(dataset, config, reward, rewards.sample_rows(dataset, config, 0), end)
    print(json.dumps(found.to_json(), indent=1))
    return Exit.DONE if found.earnable else Exit.FAILED
