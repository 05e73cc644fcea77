"""The configuration of a MindSpeed-RL run, and the numbers that follow from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stages.base.layout import RoleLayout
from stages.base.reader import read
from stages.engines.job import RunPaths, padded_row_length
from stages.engines.mindspeed_rl.config import MindspeedRlEngine
from stages.engines.ray import RayJob
from stages.models.config import ModelConfig
from stages.models.families import family_of

CONFIG_NAME = "train"
"""Name of the rendered YAML file, of the dataset and of the run, as it is passed to Hydra."""
_BATCHED_TOKENS = 8192


@dataclass(frozen=True)
class Job(RayJob):
    """The sections that a MindSpeed-RL run is rendered from."""

    engine: MindspeedRlEngine

    @property
    def cards_per_model(self) -> int:
        """Tensor x pipeline x context parallelism."""
        train = self.layout.train
        return train.model_parallel * train.pipeline_stage * train.context_parallel

    @property
    def has_experts(self) -> bool:
        """True if a layer has several feed-forward networks."""
        return family_of(self.model).experts is not None

    @property
    def sequence_parts(self) -> int:
        """Parts into which training cuts a sequence."""
        return self.layout.train.context_parallel * self.layout.train.model_parallel

    @property
    def samples_per_replica(self) -> int:
        """Completions of one step that a replica of the policy trains on."""
        return self.samples // self.layout.train.data_parallel

    @property
    def reference_npus(self) -> int:
        """Cards of the reference besides the policy's."""
        if self.engine.use_integrated_worker:
            return 0
        return self.engine.reference_npus or self.layout.train.cards

    @property
    def reward_npus(self) -> int:
        """Cards of the reward model besides both."""
        return self.engine.reward_npus or 0

    @property
    def npus(self) -> int:
        """All cards of the Ray cluster."""
        return self.layout.train.cards + self.reference_npus + self.reward_npus

    @property
    def nodes(self) -> int:
        """Machines of the Ray cluster."""
        return -(-self.npus // self.engine.cards_per_node)

    @property
    def warmup_fraction(self) -> float:
        """Share of the learning-rate schedule in which the rate rises over train.warmup_steps updates.

        The schedule has train.steps x train.prompts_per_step units, and each update advances it by its
        completions (megatron/training/training.py, get_optimizer_param_scheduler; MindSpeed-RL's
        base_training_engine.py, update).
        """
        per_update = self.mini_batch_size * self.rollout.num_generations
        return self.train.warmup_steps * per_update / (self.train.steps * self.train.prompts_per_step)

    @property
    def decay_steps(self) -> float:
        """Steps after which a falling learning rate has reached its last value."""
        return self.train.steps / (self.rollout.num_generations * self.train.num_iterations)

    @property
    def seq_length(self) -> int:
        """Longest sequence of training."""
        return self.engine.seq_length or padded_row_length(self.sample_length)

    @property
    def max_model_len(self) -> int:
        """Longest sequence of vLLM."""
        return self.engine.max_model_len or self.seq_length

    @property
    def max_num_batched_tokens(self) -> int:
        """Tokens of one vLLM step."""
        return self.engine.max_num_batched_tokens or max(_BATCHED_TOKENS, self.max_model_len)


@dataclass(frozen=True)
class Paths(RunPaths):
    """Absolute paths of a run's files."""

    tokenizer: Path
    """Hugging Face directory: tokenizer, config.json, and what vLLM reads."""
    weights: Path
    """mcore directory of the original weights."""

    @property
    def data(self) -> Path:
        """Prefix of the training data: links, because upstream writes an index next to them."""
        return self.root / "data" / "data"


def paths_of(work: Path) -> Paths:
    """Return the paths of a run's files below its work directory."""
    return Paths(work, work / "models" / "hf", work / "models" / "mcore")


def engine_of(config: Mapping[str, Any]) -> MindspeedRlEngine:
    """Return the engine section of a stage's configuration."""
    return read(MindspeedRlEngine, config["engine"], "engine")


def home_of(engine: MindspeedRlEngine) -> str:
    """Return the checkout; a placeholder for run --render if the configuration has none."""
    return engine.mindspeed_rl_home or "/path/to/MindSpeed-RL"


def layer_list(model: ModelConfig, layout: RoleLayout) -> str:
    """Return the number of layers of each pipeline stage, with commas; empty if all have the same."""
    share = model.num_hidden_layers // layout.pipeline_stage
    return ",".join(str(share + more) for more in layout.offset) if any(layout.offset) else ""
