"""GRPO, step by step: reshard, rollout, rewards, advantages, log-probabilities, update.

Shapes: P prompts of a step, G completions of each, B = P*G, S prompt slots, T completion slots.
Every worker ends each phase with the rows of all workers, so the phases may use different layouts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from mindspore import Tensor
from numpy.typing import NDArray

from stages.grpo.advantage import group_advantages
from stages.grpo.checkpoint import Checkpoints
from stages.grpo.config import RolloutConfig, TrainConfig
from stages.grpo.data import Prompts, Vocabulary
from stages.grpo.learner import Learner
from stages.grpo.logprobs import LogProbs, everyone
from stages.grpo.loss import GrpoLoss, token_weights
from stages.grpo.metrics import peak_memory_gib
from stages.grpo.parallel import Gather, Groups, Reshard
from stages.grpo.parameters import fuse, unfuse
from stages.grpo.rollout import Completions, Decoder
from stages.grpo.sampling import lengths, uniforms
from stages.grpo.setup import RoleModel, build
from stages.layout import LayoutConfig, Role
from stages.model_config import ModelConfig
from stages.rewards import RewardScores, score
from stages.rewards.config import RewardConfig
from stages.weights.tensors import load

Array = NDArray[Any]


@dataclass(frozen=True)
class Job:
    """What to train, how, and from which files."""

    model: ModelConfig
    layout: LayoutConfig
    rollout: RolloutConfig
    reward: RewardConfig
    train: TrainConfig
    seed: int
    weights: Path
    """{role}/rank_K/model.safetensors for train and reference."""
    strategies: Path
    """{role}_strategy directories."""


@dataclass(frozen=True)
class Sampled:
    """A step's prompts, completions and rewards, the same on every worker."""

    prompts: Prompts
    completions: Completions
    texts: list[str]
    """Of the B completions."""
    rewards: RewardScores

    @property
    def mask(self) -> Array:
        """1.0 on the completions' tokens, end tokens included [B, T]."""
        slots = np.arange(self.completions.ids.shape[1])
        return (slots < self.completions.lengths[:, None]).astype(np.float32)

    def metrics(self) -> dict[str, float]:
        """Rewards and lengths, for metrics.jsonl."""
        rewards, done = self.rewards, self.completions
        parts = {name: float(values.mean()) for name, values in rewards.parts.items()}
        return {
            "reward": float(rewards.total.mean()),
            "reward_std": float(rewards.total.std()),
            **{f"reward/{name}": value for name, value in parts.items()},
            **({"accuracy": parts["accuracy"]} if "accuracy" in parts else {}),
            "completion_length": float(done.lengths.mean()),
            "completion_length_max": float(done.lengths.max()),
            "completion_cut_share": float(done.cut.mean()),
        }

    def rows(self, step: int, count: int) -> list[dict[str, Any]]:
        """The first completions, for completions.jsonl."""
        G = len(self.texts) // len(self.prompts)
        return [
            {
                "step": step,
                "prompt": self.prompts.texts[i // G],
                "completion": self.texts[i],
                "solution": self.prompts.solutions[i // G],
                "reward": float(self.rewards.total[i]),
                "parts": {name: float(values[i]) for name, values in self.rewards.parts.items()},
                "length": int(self.completions.lengths[i]),
            }
            for i in range(min(count, len(self.texts)))
        ]


@dataclass(frozen=True)
class StepResult:
    """One step's numbers and texts, the same on every worker (but times are its own)."""

    metrics: dict[str, float]
    rows: list[dict[str, Any]]
    """The step's first completions, for completions.jsonl."""


class Trainer:
    """All that one worker holds for GRPO."""

    def __init__(self, job: Job, rank: int, world: int, data: Prompts, vocabulary: Vocabulary) -> None:
        """Load this worker's shards and prepare the graphs (compiled when first used).

        Args:
            job: the run.
            rank: this worker.
            world: number of workers.
            data: training prompts.
            vocabulary: ids to text.
        """
        self.job, self.rank, self.data, self.vocabulary = job, rank, data, vocabulary
        groups = Groups(world)
        self.world = Gather(groups.of(list(range(world))), world)
        self.policy = self._role("train", groups)
        self.policy.model.load(fuse(job.model, self._shard("train")))
        generator = self._role("generate", groups)
        place = self.policy.place
        group = Gather(groups.of(place.model_ranks), place.model_parallel)
        self.reshard = Reshard(self.policy.strategy, generator.strategy, place, rank, group)
        self.generator = generator
        self.decoder = Decoder(
            generator.model, job.rollout, job.train.prompts_per_step // generator.place.data_parallel,
            job.rollout.num_generations, data.ids.shape[1], vocabulary.special.eos, vocabulary.special.pad,
        )  # fmt: skip
        self.learner = Learner(
            self.policy.model,
            GrpoLoss(job.train),
            job.train,
            place,
            groups,
            self.policy.split,
            job.rollout.temperature,
        )
        self.old_logprobs = LogProbs(self.policy, job.layout.train, job.rollout.temperature, self.world)
        self.reference_logprobs: LogProbs | None = None
        if job.train.beta > 0:
            reference = self._role("reference", groups)
            reference.model.load(fuse(job.model, self._shard("reference")))
            self.reference_logprobs = LogProbs(
                reference, job.layout.reference, job.rollout.temperature, self.world
            )

    def _role(self, role: Role, groups: Groups) -> RoleModel:
        positions = self.data.ids.shape[1] + self.job.rollout.max_tokens
        strategy = self.job.strategies / f"{role}_strategy"
        return build(self.job.model, self.job.layout.role(role), strategy, self.rank, groups, positions)

    def _shard(self, role: Role) -> dict[str, Array]:
        return load(self.job.weights / role / f"rank_{self.rank}" / "model.safetensors")

    def batch(self, step: int) -> Array:
        """Rows of the prompts of `step` (from 1): each epoch in an order of its own, none left out."""
        size = self.job.train.prompts_per_step
        positions = np.arange((step - 1) * size, step * size)
        epochs = positions // len(self.data)
        orders = {
            epoch: np.random.default_rng([self.job.seed, int(epoch)]).permutation(len(self.data))
            for epoch in np.unique(epochs)
        }
        return np.array(
            [orders[epoch][i] for epoch, i in zip(epochs, positions % len(self.data), strict=True)]
        )

    def sample(self, step: int) -> Sampled:
        """Completions of the current policy for the prompts of `step`, scored, on all workers."""
        job, place, G = self.job, self.generator.place, self.job.rollout.num_generations
        prompts = self.data.take(self.batch(step))
        shards = self.reshard(unfuse(job.model, self.policy.model.weights()))
        self.generator.model.load(fuse(job.model, shards))
        mine = place.rows(len(prompts))
        draws = uniforms((job.seed, step), len(prompts) * G, job.rollout.max_tokens)
        draws = draws[mine.start * G : mine.stop * G]
        own = self.decoder.generate(prompts.ids[mine], prompts.lengths[mine], draws)
        ids = everyone(self.world, place, own.ids)
        completions = Completions(ids, *lengths(ids, self.vocabulary.special.eos))
        texts = self.vocabulary.texts(ids, completions.lengths)
        rewards = score(job.reward, texts, [solution for solution in prompts.solutions for _ in range(G)])
        return Sampled(prompts, completions, texts, rewards)

    def step(self, step: int) -> StepResult:
        """One step of GRPO: P prompts, B completions, train.num_iterations updates."""
        began = time.monotonic()
        config, G = self.job.train, self.job.rollout.num_generations
        sampled = self.sample(step)
        advantages, zero_variance = group_advantages(
            sampled.rewards.total.reshape(-1, G), config.scale_advantages
        )
        rolled = time.monotonic()
        prompt, length = sampled.prompts.ids, sampled.prompts.lengths
        completion = sampled.completions.ids.reshape(len(prompt), G, -1)
        reference = old = np.zeros(completion.shape, np.float32)
        if self.reference_logprobs is not None:
            reference = self.reference_logprobs(prompt, length, completion)
        if config.num_iterations > 1:
            old = self.old_logprobs(prompt, length, completion)
        scored = time.monotonic()
        weight = token_weights(sampled.mask, config.loss_type)
        weight, mask = (array.reshape(completion.shape) for array in (weight, sampled.mask))
        arrays = (prompt, length, completion, old, reference, advantages[..., None], weight, mask)
        for _ in range(config.num_iterations):
            sums, norm, rate = self.learner.update(self._micro_batches(arrays))
        loss, *token_sums = everyone(self.world, self.policy.place, sums[None]).sum(0)
        ended = time.monotonic()

        tokens, step_s = float(mask.sum()), ended - began
        kl, entropy, clipped = (float(value) / tokens for value in token_sums)
        metrics = {
            **sampled.metrics(),
            "zero_variance_share": zero_variance,
            "kl": kl,
            "entropy": entropy,
            "loss": float(loss),
            "grad_norm": norm,
            "lr": rate,
            "clip_fraction": clipped,
            "rollout_s": rolled - began,
            "reference_s": scored - rolled,
            "train_s": ended - scored,
            "step_s": step_s,
            "tokens_per_s": tokens / step_s,
            "completions_per_s": len(sampled.texts) / step_s,
            "peak_memory_gib": peak_memory_gib(),
        }
        return StepResult(metrics, sampled.rows(step, config.logged_completions))

    def _micro_batches(self, arrays: Sequence[Array]) -> list[list[Array]]:
        """This worker's rows of arrays [P, ...] in micro-batches; the loss's arrays become [p*G, ...]."""
        mine = self.policy.place.rows(len(arrays[0]))
        count = self.job.layout.train.micro_batch_num
        pieces = [np.split(array[mine], count) for array in arrays]
        return [
            [*batch[:3], *(array.reshape(-1, array.shape[-1]) for array in batch[3:])]
            for batch in zip(*pieces, strict=True)
        ]

    def barrier(self) -> None:
        """Return when all workers have called this."""
        self.world.arrays(np.zeros(1, np.float32))

    def state(self) -> dict[str, Array]:
        """Weights and moments of this worker, for a checkpoint."""
        optimizer = self.learner.optimizer
        moments = {"adam_m": optimizer.m.asnumpy(), "adam_v": optimizer.v.asnumpy()}
        return {**self.policy.model.weights(), **moments}

    def restore(self, checkpoints: Checkpoints) -> int:
        """Continue from the last checkpoint that every worker has; returns its step, or 0 without one."""
        steps = checkpoints.steps()
        step = int(self.world.arrays(np.array([steps[-1] if steps else 0], np.int32)).min())
        if step == 0:
            return 0
        arrays, state = checkpoints.restore(step)
        self.policy.model.load(arrays)
        self.learner.optimizer.m.set_data(Tensor(arrays["adam_m"]))
        self.learner.optimizer.v.set_data(Tensor(arrays["adam_v"]))
        self.learner.updates = int(state["updates"])
        return step
