"""Generation in a layout of its own, with weights resharded from the training layout in memory.

Shapes: P prompts, G completions of each, B = P*G, S prompt slots, T completion slots.
"""

from __future__ import annotations

import numpy as np

from stages.grpo.collectives import Gather, Groups
from stages.grpo.config import RolloutConfig
from stages.grpo.data import Prompts, Vocabulary
from stages.grpo.model import CausalLM
from stages.grpo.parallel import Mesh, reshard
from stages.grpo.parameters import fuse, unfuse
from stages.grpo.roles import RoleModel, gather_rows
from stages.grpo.rollout import Completions, Decoder
from stages.grpo.sampling import uniforms
from stages.grpo.scoring import of_worker_0
from stages.models.config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.rewards.correctness import are_right
from stages.weights.dtypes import Array


class Resharded:
    """One role's weights, resharded from the policy's layout on demand."""

    def __init__(
        self, model: ModelConfig, policy: RoleModel, target: RoleModel, rank: int, groups: Groups
    ) -> None:
        """Prepare the resharding; nothing moves if `target` is `policy` itself."""
        self.model, self.policy, self.target, self.rank = model, policy, target, rank
        self.gather = Gather(groups.get(policy.mesh.model_ranks))

    def weights(self) -> dict[str, Array]:
        """Return the policy's weights in the target's layout, by the names of parameters.parts."""
        shards = unfuse(self.model, self.policy.model.weights())
        strategies = self.policy.strategy, self.target.strategy
        return fuse(self.model, reshard(shards, *strategies, self.policy.mesh, self.rank, self.gather))

    def refresh(self) -> None:
        """Copy the policy's weights to the target."""
        if self.target is not self.policy:
            self.target.model.load(self.weights())


class Generator:
    """Generator of completions; each worker computes its own rows."""

    def __init__(
        self, role: RoleModel, config: RolloutConfig, prompts: int, prompt_slots: int,
        vocabulary: Vocabulary, seed: int, world: Gather, calls: int = 1,
    ) -> None:  # fmt: skip
        """Allocate the caches for P `prompts` of all workers together and S `prompt_slots`.

        `calls` of `sample`: as in Decoder.
        """
        self.role, self.config, self.seed, self.world = role, config, seed, world
        self.vocabulary = vocabulary
        self.decoder = Decoder(
            role.model, config, prompts // role.mesh.data_parallel, config.num_generations, prompt_slots,
            vocabulary.special, calls,
        )  # fmt: skip

    def sample(self, prompts: Prompts, step: int, attempt: int) -> Completions:
        """Complete the prompts; results [B, T] are the same on every worker, for any number of workers."""
        mesh, G = self.role.mesh, self.config.num_generations
        rows = mesh.rows(len(prompts))
        draws = uniforms((self.seed, step, attempt), len(prompts) * G, self.config.max_tokens)
        draws = draws[rows.start * G : rows.stop * G]
        sampled = self.decoder.generate(prompts.ids[rows], prompts.lengths[rows], draws)
        ids = gather_rows(self.world, mesh, sampled.ids)
        return Completions.from_ids(ids, self.vocabulary.special.eos)


class GreedyAccuracy:
    """Greedy accuracy on given prompts.

    The rules of `config` that change greedy answers (max_tokens, min_tokens, repetition_penalty) apply, as in
    the evaluate stage.
    """

    def __init__(
        self, model: CausalLM, mesh: Mesh, prompts: Prompts, config: RolloutConfig, vocabulary: Vocabulary,
        world: Gather, reward: RewardConfig | None = None, calls: int = 1,
    ) -> None:  # fmt: skip
        """Allocate the caches for all prompts, those of all workers, at once.

        `reward` decides which answers are right (correctness.py); None: numbers are compared. `calls` of this
        object: as in Decoder.
        """
        self.prompts, self.vocabulary, self.world, self.mesh = prompts, vocabulary, world, mesh
        self.reward = reward
        workers = self.mesh.data_parallel
        share = -(-len(prompts) // workers)
        rows = np.arange(share) + self.mesh.data_index * share
        # Workers without a full share repeat the first prompt, which is not counted.
        self.mine = prompts.take(np.where(rows < len(prompts), rows, 0))
        self.decoder = Decoder(model, config, share, 1, prompts.ids.shape[1], vocabulary.special, calls)

    def __call__(self) -> float:
        """Return the accuracy of the model's current weights, the same on every worker.

        Worker 0 decides: a judge with a time limit may treat an answer differently on another worker.

        Raises:
            InputError: more comparisons fail than reward.max_failures allows.
        """
        mine = self.decoder.generate(self.mine.ids, self.mine.lengths, None)
        ids = gather_rows(self.world, self.mesh, mine.ids)[: len(self.prompts)]
        done = Completions.from_ids(ids, self.vocabulary.special.eos)
        texts = self.vocabulary.texts(done.ids, done.lengths)
        read, solutions = self.prompts.continued(texts), self.prompts.solutions
        rank = self.mesh.data_index * self.mesh.model_parallel + self.mesh.model_index
        columns = self.prompts.arguments(1)  # worker 0 alone has all
        right = of_worker_0(lambda: sum(are_right(self.reward, read, solutions, columns)), rank, self.world)
        return float(right / len(texts))


def prompt_order(rows: int, seed: int, position: int, count: int) -> Array:
    """Return the row numbers of the `count` prompts after the first `position`, shuffled in each epoch."""
    epochs = range(position // rows, (position + count - 1) // rows + 1)
    orders = [np.random.default_rng([seed, epoch]).permutation(rows) for epoch in epochs]
    start = position % rows
    order: Array = np.concatenate(orders)[start : start + count]
    return order
