"""The configuration of a verl run, and the numbers that follow from it."""

from dataclasses import dataclass
from pathlib import Path

from stages.engines.job import RunPaths
from stages.engines.ray import RayJob
from stages.engines.verl.config import VerlEngine
from stages.rewards.config import RewardConfig

PLUGIN = Path(__file__).with_name("plugin")
"""Directory of the package grpoflow_verl_cpu; on PYTHONPATH of verl's interpreter with engine.device=cpu."""
PROGRAMS = Path(__file__).with_name("programs")
"""Directory of programs for verl's interpreter."""
TRAIN_DATA = "train.parquet"
REWARDS = "rewards.py"
RECIPE = "grpo"
"""Name of the rendered configuration, without .yaml."""
METRICS = "metrics"
"""Name of verl's own file of metrics, without .jsonl."""
CPUS_PER_WORKER = 3
"""CPUs that Ray reserves for each worker (verl/single_controller/ray/base.py, max_colocate_count)."""
DRIVER_CPUS = 8
"""CPUs that Ray reserves for the driver, data, agent loops and rewards."""


@dataclass(frozen=True)
class Job(RayJob):
    """The sections that a verl run is rendered from."""

    reward: RewardConfig
    engine: VerlEngine

    @property
    def cards(self) -> int:
        """Workers, each with a card."""
        return self.layout.train.cards

    @property
    def nodes(self) -> int:
        """Machines; the first ones are full."""
        return -(-self.cards // self.engine.cards_per_node)

    @property
    def replicas(self) -> int:
        """Parts that each batch is divided into for training."""
        layout = self.layout.train
        split = layout.model_parallel * layout.pipeline_stage * layout.context_parallel
        return self.cards // split

    @property
    def rollout_program(self) -> str:
        """Program that generates completions; engine.rollout is null before it is derived."""
        return self.engine.rollout or ("transformers" if self.on_cpu else "vllm")

    @property
    def seeds_samples(self) -> bool:
        """True if the plugin's agent loops give each sample a seed or an identity."""
        return self.on_cpu or self.engine.deterministic

    @property
    def on_cpu(self) -> bool:
        """True if the plugin for CPUs is used."""
        return self.engine.device == "cpu"


@dataclass(frozen=True)
class Paths(RunPaths):
    """Absolute paths of a run's files."""

    data: Path
    """Training data: a path without links, because the package datasets finds no symbolic ones."""
    held_out: Path | None = None
    """Prompts for validation, if there is any."""

    @property
    def model(self) -> Path:
        """Copy of the fetched model with training's chat template."""
        return self.root / "model"

    @property
    def completions(self) -> Path:
        """Directory in which verl writes the completions of each step."""
        return self.root / "completions"
