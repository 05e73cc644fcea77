"""The policy as it generates: in a layout of its own, fed from the training layout in memory.

Shapes: P prompts, G completions of each, B = P*G, S prompt slots, T completion slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.grpo.collectives import Gather, Groups
from stages.grpo.config import RolloutConfig
from stages.grpo.data import Prompts, Vocabulary
from stages.grpo.logprobs import gather_rows
from stages.grpo.parallel import Reshard
from stages.grpo.parameters import fuse, unfuse
from stages.grpo.rollout import Completions, Decoder
from stages.grpo.sampling import lengths, uniforms
from stages.grpo.setup import RoleModel
from stages.models.config import ModelConfig
from stages.rewards.functions import accuracy_reward

Array = NDArray[Any]


class Resharded:
    """One role's weights, brought over from the policy's layout on demand."""

    def __init__(
        self, model: ModelConfig, policy: RoleModel, target: RoleModel, rank: int, groups: Groups
    ) -> None:
        """Take over both roles; `target` may be `policy` itself, and then nothing moves."""
        self.model, self.policy, self.target = model, policy, target
        mesh = policy.mesh
        group = Gather(groups.of(mesh.model_ranks))
        self.reshard = Reshard(policy.strategy, target.strategy, mesh, rank, group)

    def weights(self) -> dict[str, Array]:
        """Return the policy's weights in the target's layout, by the names of parameters.parts."""
        return fuse(self.model, self.reshard(unfuse(self.model, self.policy.model.weights())))

    def refresh(self) -> None:
        """Copy the policy's weights to the target."""
        if self.target is not self.policy:
            self.target.model.load(self.weights())


class Generator:
    """Completes prompts of all workers, each worker computing its own rows."""

    def __init__(
        self, role: RoleModel, config: RolloutConfig, prompts: int, prompt_slots: int,
        vocabulary: Vocabulary, seed: int, world: Gather,
    ) -> None:  # fmt: skip
        """Allocate the caches.

        Args:
            role: the generating role.
            config: sampling rules.
            prompts: P of one rollout, all workers together.
            prompt_slots: S.
            vocabulary: ids to text.
            seed: of the run.
            world: gathers over all workers.
        """
        self.role, self.config, self.seed, self.world = role, config, seed, world
        self.vocabulary = vocabulary
        self.decoder = Decoder(
            role.model, config, prompts // role.mesh.data_parallel, config.num_generations, prompt_slots,
            vocabulary.special.eos, vocabulary.special.pad,
        )  # fmt: skip

    def sample(self, prompts: Prompts, step: int, attempt: int) -> Completions:
        """Completions [B, T] of the prompts, the same on every worker and whatever their number."""
        mesh, G = self.role.mesh, self.config.num_generations
        rows = mesh.rows(len(prompts))
        draws = uniforms((self.seed, step, attempt), len(prompts) * G, self.config.max_tokens)
        draws = draws[rows.start * G : rows.stop * G]
        sampled = self.decoder.generate(prompts.ids[rows], prompts.lengths[rows], draws)
        ids = gather_rows(self.world, mesh, sampled.ids)
        return Completions(ids, *lengths(ids, self.vocabulary.special.eos))


class GreedyAccuracy:
    """Share of given prompts that the model answers rightly when it takes the likeliest token each time.

    The rules of `config` that change greedy answers (max_tokens, min_tokens, repetition_penalty) apply, as in
    the evaluate stage.
    """

    def __init__(
        self, role: RoleModel, prompts: Prompts, config: RolloutConfig, vocabulary: Vocabulary, world: Gather
    ) -> None:
        """Allocate the caches for all prompts at once; `world` gathers over all workers."""
        self.prompts, self.vocabulary, self.world, self.mesh = (
            prompts,
            vocabulary,
            world,
            role.mesh,
        )
        workers = self.mesh.data_parallel
        share = -(-len(prompts) // workers)
        rows = np.arange(share) + self.mesh.data_index * share
        # What does not divide is filled up with the first prompt, and not counted.
        self.mine = prompts.take(np.where(rows < len(prompts), rows, 0))
        special = vocabulary.special
        self.decoder = Decoder(role.model, config, share, 1, prompts.ids.shape[1], special.eos, special.pad)

    def __call__(self) -> float:
        """Return the accuracy of the model's current weights."""
        done = self.decoder.generate(self.mine.ids, self.mine.lengths, None)
        ids = gather_rows(self.world, self.mesh, done.ids)[: len(self.prompts)]
        count, _ = lengths(ids, self.vocabulary.special.eos)
        texts = self.vocabulary.texts(ids, count)
        return float(np.mean(accuracy_reward(texts, list(self.prompts.solutions))))


class PromptOrder:
    """The order in which training prompts come: each epoch in one of its own, none left out."""

    def __init__(self, rows: int, seed: int) -> None:
        """Take over the number of prompts."""
        self.rows, self.seed = rows, seed

    def take(self, position: int, count: int) -> Array:
        """Row numbers of the `count` prompts after the first `position`."""
        positions = np.arange(position, position + count)
        epochs = positions // self.rows
        orders = {epoch: self._order(int(epoch)) for epoch in np.unique(epochs)}
        return np.array(
            [orders[epoch][i] for epoch, i in zip(epochs, positions % self.rows, strict=True)], np.int64
        )

    def _order(self, epoch: int) -> Array:
        return np.random.default_rng([self.seed, epoch]).permutation(self.rows)
