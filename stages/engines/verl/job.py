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


STALENESS = {"sync": 0, "one_step_off": 1, "fully_async": 7}
"""Default of engine.staleness; the last is verl's own (trainer.v1.sampler.max_off_policy_threshold 8)."""


@dataclass(frozen=True)
class Job(RayJob):
    """The sections that a verl run is rendered from."""

    reward: RewardConfig
    engine: VerlEngine

    @property
    def prompt_length(self) -> int:
        """Tokens of the longest prompt, with the descriptions of functions."""
        return self.tokenize.max_prompt_length + self.rollout.prompt_growth

    @property
    def sample_length(self) -> int:
        """Tokens of the longest sample: prompt and completion."""
        return self.prompt_length + self.rollout.max_tokens

    @property
    def is_async(self) -> bool:
        """True if other cards generate while those of layout.train update the weights."""
        return self.engine.mode != "sync"

    @property
    def train_cards(self) -> int:
        """Workers that train, each with a card."""
        return self.layout.train.cards

    @property
    def rollout_cards(self) -> int:
        """Cards that generate and do not train."""
        return (self.engine.rollout_cards or self.train_cards) if self.is_async else 0

    @property
    def cards(self) -> int:
        """Cards that train or generate."""
        return self.train_cards + self.rollout_cards

    @property
    def staleness(self) -> int:
        """Versions by which a completion may be older than the weights that train on it."""
        if self.engine.staleness is not None:
            return self.engine.staleness
        return STALENESS[self.engine.mode]

    @property
    def updates(self) -> int:
        """Parts into which a step's prompts are divided; each is an update (per train.num_iterations)."""
        return self.train.prompts_per_step // self.mini_batch_size

    @property
    def nodes(self) -> int:
        """Machines; the first ones are full."""
        return self.nodes_of(self.cards)

    def nodes_of(self, cards: int) -> int:
        """Return how many machines have so many cards."""
        return -(-cards // self.engine.cards_per_node)

    @property
    def replicas(self) -> int:
        """Parts that each batch is divided into for training."""
        layout = self.layout.train
        split = layout.model_parallel * layout.pipeline_stage * layout.context_parallel
        return self.train_cards // split

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
