"""Tokens, rewards and log-probabilities of a step, so that its numbers can be computed again.

A logged step is one file, completions/step_000001.npz, which numpy.load reads. Its rows are all sampled
completions in their order; those of one prompt are neighbours, and the first rows are those of
completions.jsonl.

Shapes: P prompts, G completions of each, B = P*G; S and T tokens of the longest prompt and completion.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stages.grpo.sampled import Sampled
from stages.weights.dtypes import Array

DIRECTORY = "completions"
ARRAYS = {
    "prompt_ids": "[P, S] int32, the padding id after prompt_lengths",
    "prompt_lengths": "[P] int32",
    "completion_ids": "[B, T] int32, the padding id after completion_lengths",
    "completion_lengths": "[B] int32, end token included",
    "truncated": "[B] bool: cut at rollout.max_tokens",
    "trained": "[B] bool: false for completions that dynamic sampling left out",
    "rewards": "[B] float32, weighted sum of the reward functions",
    "rewards/*": "[B] float32, one reward function, unweighted",
    "advantages": "[B] float32; nan where trained is false, as in all arrays below",
    "sampling_logprobs": "[B, T] float32: log-probability of each token under the policy that sampled, at"
    " rollout.temperature and before top_k, top_p, min_p, min_tokens and repetition_penalty; 0 on padding;"
    " nan also where the update had nothing to compute (skipped_completions in metrics.jsonl), so below, too",
    "reference_logprobs": "[B, T] float32: the same under the reference; absent with train.beta=0",
    "policy_logprobs": "[B, T] float32: the same under the policy before the step's last update; absent with"
    " train.num_iterations=1, where it is the policy that sampled",
}
"""Every array of a file; a star stands for a reward function's name."""


@dataclass(frozen=True)
class Learned:
    """Numbers of a step's updates; arrays have a row for each completion that was trained on."""

    metrics: dict[str, float]
    tokens: int
    """Tokens that each update computed."""
    problem: str | None
    """Evidence that training has diverged; None while it has not."""
    advantages_B: Array
    logprobs: Mapping[str, Array]
    """`sampling`, `reference` and `policy` as in ARRAYS -> [B, T], undefined on padding."""


def step_arrays(sampled: Sampled, learned: Learned, groups: Array) -> dict[str, Array]:
    """Return the arrays of a step's file; `groups`: indices of the sampled groups that `learned` is about."""
    done, prompts = sampled.completions, sampled.prompts
    S, T = int(prompts.lengths.max()), int(done.lengths.max())
    rows = (groups[:, None] * sampled.group_size + np.arange(sampled.group_size)).reshape(-1)
    trained = np.isin(np.arange(len(sampled.texts)), rows)
    mask = np.arange(T) < done.lengths[rows, None]

    def spread(values: Array) -> Array:
        """Spread the values of the trained rows over all rows, with nan elsewhere."""
        result = np.full((len(trained), *values.shape[1:]), np.nan, np.float32)
        result[rows] = values
        return result

    return {
        "prompt_ids": prompts.ids[:, :S],
        "prompt_lengths": prompts.lengths,
        "completion_ids": done.ids[:, :T],
        "completion_lengths": done.lengths,
        "truncated": done.cut,
        "trained": trained,
        "rewards": sampled.rewards.total,
        **{f"rewards/{name}": values for name, values in sampled.rewards.parts.items()},
        "advantages": spread(learned.advantages_B),
        **{
            f"{name}_logprobs": spread(np.where(mask, values[:, :T], 0))
            for name, values in learned.logprobs.items()
        },
    }


class StepRecords:
    """The files of a running stage, in a directory that survives a kill."""

    def __init__(self, work: Path, last_step: int) -> None:
        """Remove what a killed attempt wrote after `last_step`."""
        self.directory = work / DIRECTORY
        current = {self.path(step) for step in range(1, last_step + 1)}
        for file in set(self.directory.glob("*")) - current:
            file.unlink()

    def path(self, step: int) -> Path:
        """Return the file of a step."""
        return self.directory / f"step_{step:06d}.npz"

    def write(self, step: int, arrays: Mapping[str, Array]) -> None:
        """Write the file of a step; a kill may leave a part of it, which the next attempt removes."""
        self.directory.mkdir(parents=True, exist_ok=True)
        np.savez_compressed(self.path(step), **arrays)

    def copy_to(self, output: Path) -> None:
        """Copy all files into the artifact."""
        if self.directory.exists():
            shutil.copytree(self.directory, output / DIRECTORY)
