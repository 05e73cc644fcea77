"""The configuration of an AReaL run, and the numbers that follow from it."""

from dataclasses import dataclass
from pathlib import Path

from stages.engines.areal.config import ArealEngine
from stages.engines.job import RunPaths
from stages.engines.ray import RayJob
from stages.rewards.config import RewardConfig

PROGRAMS = Path(__file__).with_name("programs")
"""Directory of the package grpoflow_areal, on PYTHONPATH of AReaL's interpreter."""
TRAIN_DATA = "train.jsonl"
RECIPE = "grpo"
"""Name of the rendered configuration, without .yaml."""
TASK = "task.json"
"""Name of the rendered file with what driver and workflow need besides."""
METRICS = "metrics"
"""Name of the file in which the driver writes AReaL's metrics, without .jsonl."""
EXPERIMENT, TRIAL = "grpoflow", "grpo"
"""AReaL's names of the run; its directories are named by them."""
ASYNC_STALENESS = 2
"""Default of engine.staleness with mode=async, as in AReaL's examples (examples/math/gsm8k_grpo_npu.yaml)."""

REQUEST_TIMEOUT_S = 3600.0
"""AReaL's own limit for a prompt, which engine.request_timeout_s replaces (api/cli_args.py)."""


@dataclass(frozen=True)
class Job(RayJob):
    """The sections that an AReaL run is rendered from."""

    reward: RewardConfig
    engine: ArealEngine

    @property
    def train_cards(self) -> int:
        """Workers that train, each with a card."""
        return self.layout.train.cards

    @property
    def rollout_cards(self) -> int:
        """Cards that generate."""
        return self.engine.rollout_cards or self.train_cards

    @property
    def servers(self) -> int:
        """Inference servers, each on layout.generate.model_parallel cards."""
        return max(1, self.rollout_cards // self.layout.generate.model_parallel)

    @property
    def cards(self) -> int:
        """Cards that train or generate."""
        return self.train_cards + self.rollout_cards

    @property
    def nodes(self) -> int:
        """Machines; the first ones are full."""
        return -(-self.cards // self.engine.cards_per_node)

    @property
    def on_ray(self) -> bool:
        """True if Ray starts the workers: on several machines, or on others than this one."""
        if self.engine.launcher == "ray" and self.engine.ray_address is not None:
            return True
        return self.nodes > 1 or self.engine.launcher in ("ssh", "slurm")

    @property
    def on_cpu(self) -> bool:
        """True if grpoflow's server for CPUs generates."""
        return self.engine.device == "cpu"

    @property
    def is_async(self) -> bool:
        """True if generation goes on while weights are updated."""
        return self.engine.mode == "async"

    @property
    def staleness(self) -> int:
        """Versions by which a completion may be older than the weights that train on it."""
        if self.engine.staleness is not None:
            return self.engine.staleness
        return ASYNC_STALENESS if self.is_async else 0

    @property
    def request_timeout_s(self) -> float:
        """Seconds in which a prompt must have all its completions and rewards."""
        return self.engine.request_timeout_s or REQUEST_TIMEOUT_S

    @property
    def save_every(self) -> int:
        """Steps between the states from which a run resumes."""
        return self.train.checkpoint_every or self.train.steps


@dataclass(frozen=True)
class Paths(RunPaths):
    """Absolute paths of a run's files."""

    data: Path
    """Training data: JSON lines."""

    @property
    def model(self) -> Path:
        """Copy of the fetched model."""
        return self.root / "model"

    @property
    def areal(self) -> Path:
        """AReaL's fileroot: logs and weights on their way to the servers."""
        return self.root / "areal"

    @property
    def final(self) -> Path:
        """The trained model, a Hugging Face directory; appears by one rename when it is complete."""
        return self.root / "final"

    @property
    def completions(self) -> Path:
        """File with the completions of all steps."""
        return self.root / "completions.jsonl"

    @property
    def episodes(self) -> Path:
        """Directory with a file for each completion that no step has trained on yet."""
        return self.root / "episodes"
