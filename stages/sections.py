"""Sections of a run's configuration; each is defined next to the code that it configures."""

import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Le

from stages import engines
from stages.base.identity import NotInIdentity
from stages.base.layout import LayoutConfig
from stages.engines.config import OutsideEngine
from stages.engines.mindformers.config import MindformersConfig
from stages.fetch.config import DatasetConfig
from stages.fetch.sources import FetchConfig
from stages.grpo.config import EvaluateConfig, LocalEngine, RolloutConfig, SftConfig, TrainConfig
from stages.models.config import ModelConfig
from stages.report.config import ReportConfig
from stages.report.gates import GatesConfig
from stages.rewards.config import RewardConfig
from stages.tokenize.config import SftDataConfig, TokenizeConfig
from stages.weights.config import ConvertConfig, ExportConfig, SplitConfig

if TYPE_CHECKING:
    EngineConfig = LocalEngine | OutsideEngine
else:
    EngineConfig = typing.Union[tuple([LocalEngine, *engines.settings()])]  # noqa: UP007
"""Settings of the chosen engine; the module `engine` of the same package has its Engine."""


@dataclass(frozen=True)
class Sections:
    """Configuration of all stages of a run. Defaults are in conf/*.yaml."""

    seed: Annotated[int, Ge(0), Le(2**31 - 1)]
    """Seed of all randomness: built-in weights and data, sampling, order of the data."""
    model: ModelConfig
    layout: LayoutConfig
    dataset: DatasetConfig
    fetch: Annotated[FetchConfig, NotInIdentity()]
    tokenize: TokenizeConfig
    convert: ConvertConfig
    split: SplitConfig
    reward: RewardConfig
    engine: EngineConfig
    """Engine of the grpo stage and its settings."""
    rollout: RolloutConfig
    sft: SftConfig
    sft_data: SftDataConfig
    mindformers: MindformersConfig
    """Supervised training with engine.sft=mindformers."""
    train: TrainConfig
    evaluate: EvaluateConfig
    gates: GatesConfig
    export: ExportConfig
    report: ReportConfig
