"""Configuration of a mindrlhf run, and numbers derived from it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from stages.base.layout import ROLES, Role
from stages.engines.job import GrpoJob, RunPaths, padded_row_length
from stages.engines.layout_rules import sequence_parts
from stages.engines.mindrlhf.config import MindrlhfEngine, MindrlhfSettings, Version
from stages.models.families import family_of
from stages.models.family import Mindrlhf
from stages.rewards.config import RewardConfig

VERIFIERS = {
    "qwen_accuracy": "qwen_accuracy_reward",
    "format": "format_reward",
    "knights": "kk_reward",
}
"""Reward function -> mindrlhf's registered one. accuracy has none: mindrlhf replaces accuracy_reward by
qwen_accuracy_reward if model_name contains qwen (grpo_experience_maker.py, _init_reward_fn)."""
SHORTEST_ROW = 2048
"""Size of a compressed mask, with which mindformers refuses shorter rows (transformer.py:1261). mindrlhf uses
it, so that packed samples do not see each other, for the families to which train_worker.py:87 passes
use_eod_attn_mask_compression."""
MOST_SEQUENCES = 1024
"""mindrlhf's default for max_num_seqs (grpo_configs.py)."""


@dataclass(frozen=True)
class MindrlhfJob(GrpoJob):
    """Sections of a run of mindrlhf, also of its one-stage script."""

    reward: RewardConfig
    engine: MindrlhfSettings

    @property
    def roles(self) -> tuple[Role, ...]:
        """Roles with layouts of their own."""
        return ROLES

    @property
    def batch(self) -> int:
        """Prompts for which completions are generated at once."""
        return self.engine.chunk_size * self.layout.generate.data_parallel

    @property
    def num_rollouts(self) -> int:
        """Batches of prompts per step."""
        return max(1, self.train.prompts_per_step // self.batch)

    @property
    def pack_num(self) -> int:
        """Samples of a row."""
        return 1

    @property
    def packs(self) -> int:
        """Rows of a step."""
        return -(-self.samples // self.pack_num)

    @property
    def seq_length(self) -> int:
        """Row length of training."""
        return self.engine.seq_length or padded_row_length(self.sample_length)

    @property
    def rows_per_update(self) -> int:
        """Rows of one optimizer update (train_worker.py, _init_grpo_dataset_before_train)."""
        train = self.layout.train
        micro = train.micro_batch_num if train.pipeline_stage > 1 else 1
        return self.engine.batch_size * train.data_parallel * micro

    @property
    def sequence_parts(self) -> int:
        """Number that every role's parts of a sequence divide."""
        return math.lcm(*(sequence_parts(self.layout.role(role)) for role in self.roles))

    @property
    def prompts_per_update(self) -> int:
        """Prompts whose completions fill generated batches and updates."""
        return self.prompts_that_fill(self.rows_per_update)

    @property
    def fills_batches(self) -> bool:
        """True if prompts_per_step is valid, so that the rows of a step are known."""
        return self.train.prompts_per_step % self.batch == 0

    def prompts_that_fill(self, rows: int) -> int:
        """Return the fewest prompts that fill generated batches, and whose completions fill `rows`."""
        samples = self.pack_num * rows
        return math.lcm(self.batch, samples // math.gcd(samples, self.rollout.num_generations))

    @property
    def updates_per_step(self) -> int:
        """Optimizer updates of one step."""
        return max(1, self.packs // self.rows_per_update) * self.train.num_iterations


@dataclass(frozen=True)
class Job(MindrlhfJob):
    """Sections that a mindrlhf run is rendered from."""

    engine: MindrlhfEngine

    @property
    def version(self) -> Version:
        """The contract, which is resolved before a stage runs."""
        assert self.engine.contract != "auto"
        return self.engine.contract

    @property
    def is_newer(self) -> bool:
        """True for the newer of the two contracts, e8a8fc1."""
        return self.version == "e8a8fc1"

    @property
    def tutorial(self) -> Mindrlhf:
        """Tutorial in mindrlhf for the model's family."""
        tutorial = family_of(self.model).mindrlhf
        assert tutorial is not None  # stages.models.families.family_problems
        return tutorial

    @property
    def verifiers(self) -> Mapping[str, str]:
        """Our reward functions -> mindrlhf's, for this family."""
        accuracy = self.tutorial.accuracy
        return VERIFIERS if accuracy is None else {**VERIFIERS, "accuracy": accuracy}

    @property
    def pack_num(self) -> int:
        """Samples of a row."""
        return self.engine.pack_num

    @property
    def generated_length(self) -> int:
        """Longest prompt and completion."""
        return self.tokenize.max_prompt_length + self.rollout.max_tokens

    @property
    def sample_length(self) -> int:
        """Longest sample: prompt, completion and one end token (pack_grouped_data)."""
        return self.generated_length + 1

    @property
    def rows_per_reference_batch(self) -> int:
        """Rows of one forward pass of the reference."""
        return self.engine.ref_model_batch_size * self.layout.reference.data_parallel

    @property
    def prompts_per_reference_batch(self) -> int:
        """Prompts whose completions fill generated batches and those of the reference."""
        return self.prompts_that_fill(self.rows_per_reference_batch)

    @property
    def shortest_row(self) -> int:
        """Minimum length of a row in tokens."""
        return SHORTEST_ROW if self.tutorial.masks_samples else 1

    @property
    def seq_length(self) -> int:
        """Row length of training."""
        needed = max(self.engine.pack_num * self.sample_length, self.shortest_row)
        return self.engine.seq_length or padded_row_length(needed)

    @property
    def max_model_len(self) -> int:
        """Longest sequence of vLLM."""
        return self.engine.max_model_len or self.seq_length

    @property
    def max_num_seqs(self) -> int:
        """Sequences that vLLM decodes at once; it refuses more than max_model_len."""
        return self.engine.max_num_seqs or min(MOST_SEQUENCES, self.max_model_len)

    @property
    def distinct_completions(self) -> int:
        """Completions of a prompt that can differ if MindFormers generates.

        A replica seeds each call with its own number, so its calls for one prompt have the same result
        (infer_worker.py, generate; grpo_experience_maker.py, generate_sequence); the completions of a prompt
        are distributed over the replicas (_split_for_data_parallel).
        """
        return min(self.layout.generate.data_parallel, self.rollout.num_generations)

    @property
    def reads_tokenizer_json(self) -> bool:
        """True if mindrlhf reads tokenizer.json instead of using the family's class (vocabulary.py)."""
        return self.tutorial.constant_ids and self.engine.tokenizer == "file"


@dataclass(frozen=True)
class Paths(RunPaths):
    """Absolute paths of a run's files."""

    dataset: Path
    """train.mindrecord."""
    tokenizer: Path
    """Hugging Face directory: tokenizer, config.json, and what vLLM loads."""
    actor: Path
    """Weights at the start, or root/checkpoints/train when the run resumes."""
    reference: Path
    generate: Path
