"""GRPO, step by step: reshard, rollout, rewards, advantages, log-probabilities, update.

Shapes as in batch.py, P being all prompts of a step, and K sums of a loss.
Every worker ends each phase with the rows of all workers, so the phases may use different layouts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stages.base.layout import LayoutConfig, Role
from stages.grpo import algorithm
from stages.grpo.batch import Batch
from stages.grpo.collectives import Gather, Groups
from stages.grpo.config import RolloutConfig, TrainConfig, shard_key
from stages.grpo.data import Prompts, Vocabulary
from stages.grpo.generator import Generator, GreedyAccuracy, Resharded, prompt_order
from stages.grpo.learner import Learner
from stages.grpo.loss import PolicyLoss, token_weights, without_gradient
from stages.grpo.metrics import Clock, peak_memory_gib
from stages.grpo.parameters import fuse
from stages.grpo.records import Learned
from stages.grpo.roles import LogProbs, RoleModel, build, gather_rows
from stages.grpo.rollout import Completions
from stages.grpo.sampled import Sampled, standard_error
from stages.grpo.scoring import join_scores, score_shared
from stages.grpo.worker import give_back_memory
from stages.models.config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.rewards.score import RewardScores, check_failures
from stages.weights.dtypes import Array
from stages.weights.tensors import load


@dataclass(frozen=True)
class TrainingJob:
    """Complete description of a training run: models, data and settings."""

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


def update_metrics(sums_PK: Array, tokens_P: Array, computed_P: Array) -> dict[str, float]:
    """Return the metrics of an update, by the names of metrics.SCHEMA.

    Args:
        sums_PK: PolicyLoss.sums over the tokens of each group.
        tokens_P: tokens that counted in each group.
        computed_P: those of them that the update computed.
    """
    sums = dict(zip(PolicyLoss.sums, sums_PK.T.astype(np.float64), strict=True))
    low, high = (float(sums[name].sum() / max(tokens_P.sum(), 1)) for name in ("clip_low", "clip_high"))
    kl, entropy = (float(sums[name].sum() / max(computed_P.sum(), 1)) for name in ("kl", "entropy"))
    return {
        "loss": float(sums["loss"].sum()),
        "kl": kl,
        "kl_stderr": standard_error(sums["kl"], computed_P),
        "entropy": entropy,
        "entropy_stderr": standard_error(sums["entropy"], computed_P),
        "clip_low_fraction": low,
        "clip_high_fraction": high,
        "clip_fraction": low + high,
    }


@dataclass(frozen=True)
class StepResult:
    """One step's metrics and completions, the same on every worker except for times."""

    metrics: dict[str, float]
    sampled: Sampled
    learned: Learned
    groups: Array
    """Indices of the sampled groups that the step learned from, ascending."""


class Trainer:
    """One worker's models, optimizer and data for GRPO."""

    def __init__(
        self, job: TrainingJob, rank: int, world: int, data: Prompts, vocabulary: Vocabulary,
        held_out: Prompts | None = None,
    ) -> None:  # fmt: skip
        """Load this worker's shards and prepare the graphs, which are compiled when first used.

        `data`: training prompts; `held_out`: prompts for `validate`.
        """
        self.job, self.rank, self.data, self.vocabulary = job, rank, data, vocabulary
        self.groups = Groups(world)
        self.world = Gather(self.groups.get(list(range(world))))
        self.policy = self._role("train")
        self.policy.model.load(fuse(job.model, self._shard("train")))
        self.reference: RoleModel | None = None
        if job.train.beta > 0:
            self.reference = self._role("reference")
            self.reference.model.load(fuse(job.model, self._shard("reference")))
            self.reference_logprobs = self._logprobs(self.reference, "reference")
            self.to_reference = Resharded(job.model, self.policy, self.reference, rank, self.groups)
        give_back_memory()  # before allocating moments and caches
        # If both layouts cut the weights alike, they share one copy.
        shared = shard_key(job.layout.train) == shard_key(job.layout.generate)
        generating = self.policy if shared else self._role("generate")
        self.resharded = Resharded(job.model, self.policy, generating, rank, self.groups)
        self.generator = Generator(
            generating, job.rollout, job.train.prompts_per_step, data.ids.shape[1], vocabulary, job.seed,
            self.world, job.train.steps,
        )  # fmt: skip
        self.learner = Learner(
            self.policy.model, PolicyLoss(job.train), job.train, self.policy.mesh, self.groups,
            self.policy.split, job.rollout.temperature,
        )  # fmt: skip
        self.old_logprobs = self._logprobs(self.policy, "train")
        self.accuracy = None
        if held_out is not None:
            self.accuracy = GreedyAccuracy(
                generating.model, generating.mesh, held_out, job.rollout, vocabulary, self.world, job.reward,
                job.train.steps // job.train.validate_every,
            )  # fmt: skip
        self.position = 0
        """Training prompts used so far."""

    def _role(self, role: Role) -> RoleModel:
        positions = self.data.ids.shape[1] + self.job.rollout.max_tokens
        strategy, layout = self.job.strategies / f"{role}_strategy", self.job.layout.role(role)
        explores = role == "train" and self.job.train.entropy_coeff > 0
        return build(self.job.model, layout, strategy, self.rank, self.groups, positions, explores)

    def _shard(self, role: Role) -> dict[str, Array]:
        return load(self.job.weights / role / f"rank_{self.rank}" / "model.safetensors")

    def _logprobs(self, role: RoleModel, name: Role) -> LogProbs:
        return LogProbs(role, self.job.layout.role(name), self.job.rollout.temperature, self.world)

    def step(self, step: int) -> StepResult:
        """Take one step of GRPO: P prompts, B completions, train.num_iterations updates."""
        clock, config = Clock(), self.job.train
        sampled = self.sample(step, clock)
        groups = algorithm.choose_groups(sampled.grouped_rewards, config.prompts_per_step)
        chosen = sampled.take(groups)
        learned = self.learn(chosen, clock)
        if config.ref_model_sync_steps and step % config.ref_model_sync_steps == 0:
            self._move_reference()
        tokens = {"rollout": sampled.completions.lengths.sum(), "train": learned.tokens}
        step_s = clock.total()
        metrics = {
            **sampled.metrics(),
            **learned.metrics,
            **{f"{phase}_s": seconds for phase, seconds in clock.phases.items()},
            "step_s": step_s,
            "tokens_per_s": float(tokens["rollout"]) / step_s,
            "rollout_tokens_per_s": float(tokens["rollout"]) / clock.phases["rollout"],
            "train_tokens_per_s": float(tokens["train"]) * config.num_iterations / clock.phases["train"],
            "completions_per_s": len(sampled.texts) / step_s,
            "peak_memory_gib": peak_memory_gib(),
        }
        return StepResult(metrics, sampled, learned, groups)

    def sample(self, step: int, clock: Clock) -> Sampled:
        """Sample and score completions of the policy, in as many rollouts as dynamic sampling needs."""
        size, G, reward = self.job.train.prompts_per_step, self.job.rollout.num_generations, self.job.reward
        with clock("reshard"):
            self.resharded.refresh()
        rows, ids, texts, scores = list[Array](), list[Array](), list[str](), list[RewardScores]()
        informative = 0
        for attempt in range(1 + self.job.train.resample_rounds):
            rows.append(prompt_order(len(self.data), self.job.seed, self.position, size))
            prompts = self.data.take(rows[-1])
            self.position += size
            with clock("rollout"):
                done = self.generator.sample(prompts, step, attempt)
            with clock("reward"):
                ids.append(done.ids)
                decoded = self.vocabulary.texts(done.ids, done.lengths)
                texts += decoded
                decoded = prompts.continued(decoded)
                solutions = [solution for solution in prompts.solutions for _ in range(G)]
                columns = prompts.arguments(G)
                scores.append(
                    score_shared(reward, decoded, solutions, done.lengths, self.rank, self.world, columns)
                )
                check_failures(reward, scores[-1], len(decoded), f"completions of step {step}")
            informative += int(algorithm.informative(scores[-1].total.reshape(size, G)).sum())
            if informative >= size:
                break
        completions = Completions.from_ids(np.concatenate(ids), self.vocabulary.special.eos)
        return Sampled(self.data.take(np.concatenate(rows)), completions, texts, join_scores(scores))

    def learn(self, sampled: Sampled, clock: Clock) -> Learned:
        """Take train.num_iterations updates on given completions."""
        config, P = self.job.train, len(sampled.prompts)
        mask_BT = sampled.mask
        if config.mask_truncated_completions:
            mask_BT = algorithm.without_cut(mask_BT, sampled.completions.cut)
        tokens_PG = sampled.completions.lengths.reshape(P, -1)
        advantages_PG = algorithm.advantages(
            config.advantages, sampled.grouped_rewards, config.scale_advantages, tokens_PG
        )
        old_BT = reference_BT = np.zeros_like(mask_BT)
        batch = Batch(
            prompt_PS=sampled.prompts.ids,
            prompt_length_P=sampled.prompts.lengths,
            completion_PGT=sampled.completions.ids.reshape(*advantages_PG.shape, -1),
            weight_BT=token_weights(mask_BT, config.loss_type, self.job.rollout.max_tokens),
            mask_BT=mask_BT,
            advantage_B1=advantages_PG.reshape(-1, 1),
            tokens_PG=tokens_PG,
        )
        left_out_B = without_gradient(config, advantages_PG.reshape(-1), mask_BT)
        if left_out_B.any():
            batch = batch.without(left_out_B)
        with clock("reference"):
            if self.reference is not None:
                reference_BT = self.reference_logprobs(batch)
            if config.num_iterations > 1:
                old_BT = self.old_logprobs(batch)
        batch = replace(batch, old_logprobs_BT=old_BT, ref_logprobs_BT=reference_BT)
        assert batch.mask_BT is not None and batch.tokens_PG is not None
        mesh = self.policy.mesh
        micro_batches = batch.micro_batches(mesh, self.job.layout.train.micro_batch_num)
        with clock("train"):
            for _ in range(config.num_iterations):
                update = self.learner.update(batch, micro_batches)
            sums_PK = gather_rows(self.world, mesh, update.sums_PK[mesh.rows(P)])
            policy_PGT = gather_rows(self.world, mesh, update.logprobs_PGT[mesh.rows(P)])
        counted_P, computed_P = (mask.reshape(P, -1).sum(1) for mask in (mask_BT, batch.mask_BT))
        metrics = update_metrics(sums_PK, counted_P, computed_P)
        problem = self._problem(metrics["loss"], update.grad_norm, metrics["kl"])
        metrics |= {"grad_norm": update.grad_norm, "lr": update.learning_rate}
        policy_BT, old_BT = (
            np.where(left_out_B[:, None], np.float32(np.nan), values.reshape(mask_BT.shape))
            for values in (policy_PGT, old_BT)
        )
        logprobs = {"sampling": policy_BT if config.num_iterations == 1 else old_BT}
        if self.reference is None:
            del metrics["kl"], metrics["kl_stderr"]
            metrics |= {"skipped_completions": float(left_out_B.sum()), "reference_completions": 0.0}
        else:
            logprobs["reference"] = reference_BT
        if config.num_iterations > 1:
            logprobs["policy"] = policy_BT
        if not computed_P.any():
            del metrics["entropy"], metrics["entropy_stderr"]
        return Learned(metrics, int(batch.tokens_PG.sum()), problem, advantages_PG.reshape(-1), logprobs)

    def _problem(self, loss: float, norm: float, kl: float) -> str | None:
        if not (math.isfinite(loss) and math.isfinite(norm)):
            return f"the loss is {loss} and the gradient's norm {norm}"
        limit = self.job.train.max_kl
        return (
            f"the KL to the reference, {kl:.4g}, exceeds train.max_kl={limit}"
            if limit and kl > limit
            else None
        )

    def _move_reference(self) -> None:
        """Replace the reference by a mixture of itself and the policy.

        Source: Gorbatovski et al. 2024, TR-DPO, arXiv:2404.09656, eq. 5; TRL's SyncRefModelCallback.
        """
        assert self.reference is not None
        share = np.float32(self.job.train.ref_model_mixup_alpha)
        carried = self.to_reference.weights()
        mixed = {
            name: (1 - share) * array + share * carried[name]
            for name, array in self.reference.model.weights().items()
        }
        self.reference.model.load(mixed)

    def validate(self) -> float:
        """Return the greedy accuracy of the current policy on the held-out prompts."""
        assert self.accuracy is not None
        self.resharded.refresh()
        return self.accuracy()

    def minimum(self, number: int) -> int:
        """Return the smallest number of all workers, once all have called this."""
        return int(self.world.arrays(np.array([number], np.int32)).min())

    def barrier(self) -> None:
        """Wait until all workers have called this."""
        self.minimum(0)
