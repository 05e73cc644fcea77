"""The configuration as Hydra composes it: fields that follow from other values may be null.

`load.derive` turns it into a `Config`, where none of these fields is null. The classes have no comparison and
text of their own, which would take half of the time to import them.
"""

from dataclasses import dataclass
from typing import Literal

from pipeline.config.sections import Config
from stages.base.bounds import NonNegative, Positive
from stages.base.layout import LayoutConfig, RoleLayout
from stages.fetch.config import DatasetConfig
from stages.grpo.config import EvaluateConfig, InferenceLayout, TrainConfig
from stages.models.config import ModelConfig


@dataclass(frozen=True, eq=False, repr=False)
class ComposedTrainRole(RoleLayout):
    """Layout of the train role."""

    micro_batch_num: Positive | None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class ComposedRole(ComposedTrainRole):
    """Layout of a role whose degrees may follow from those of train."""

    data_parallel: Positive | None  # type: ignore[assignment]
    model_parallel: Positive | None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class ComposedLayout(LayoutConfig):
    """Layouts of the three roles."""

    name: str | None  # type: ignore[assignment]
    train: ComposedTrainRole
    generate: ComposedRole
    reference: ComposedRole


@dataclass(frozen=True, eq=False, repr=False)
class ComposedModel(ModelConfig):
    """Model whose source may follow from its path and hub."""

    source: Literal["builtin", "local", "modelscope"] | None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class ComposedDataset(DatasetConfig):
    """Dataset whose source may follow from its path, hub and files."""

    source: Literal["builtin", "local", "url", "modelscope"] | None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class ComposedTraining(TrainConfig):
    """Training whose scale of advantages and interval of validations may follow from other keys."""

    scale_advantages: bool | None  # type: ignore[assignment]
    validate_every: NonNegative | None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class ComposedInference(InferenceLayout):
    """Layout of the program that answers, whose degrees may follow from those of the run."""

    tensor_parallel: Positive | None  # type: ignore[assignment]
    replicas: Positive | None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False, repr=False)
class ComposedEvaluation(EvaluateConfig):
    """Evaluation whose program may follow from the engine's environment."""

    program: Literal["local", "vllm"] | None  # type: ignore[assignment]
    layout: ComposedInference


@dataclass(frozen=True, eq=False, repr=False)
class Composed(Config):
    """All sections."""

    cards: Positive | None  # type: ignore[assignment]
    model: ComposedModel
    layout: ComposedLayout
    dataset: ComposedDataset
    train: ComposedTraining
    evaluate: ComposedEvaluation
