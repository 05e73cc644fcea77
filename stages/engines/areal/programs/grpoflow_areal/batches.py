"""The rows of each step, and what AReaL trains on in it.

AReaL takes the prompts of a step from Batches, in place of its own data loader, and Batches looks at the
completions that come back. What the step trains on is known only then: with engine.mode=async it may be
completions of prompts of an earlier step.
"""
# mypy: ignore-errors

import hashlib
import json
import random
from collections import Counter
from pathlib import Path
from statistics import fmean, pstdev

from areal.infra.rpc.rtensor import get_backend


class Rows:
    """The rows of all steps: epochs over the training data, each in another order."""

    def __init__(self, task):
        with open(task["data"], encoding="utf-8") as file:
            self._rows = [json.loads(line) for line in file]
        self._order = []
        for epoch in range(-(-task["steps"] * task["prompts_per_step"] // len(self._rows))):
            order = list(range(len(self._rows)))
            random.Random(f"{task['seed']} {epoch}").shuffle(order)  # noqa: S311
            self._order += order
        del self._order[task["steps"] * task["prompts_per_step"] :]

    def __len__(self):
        return len(self._order)

    def __getitem__(self, index):
        return self._rows[self._order[index]]


class Batches:
    """The prompts of each step after `done` steps, with the interface of AReaL's data loader."""

    def __init__(self, rows, task, done):
        self.batch_size = task["prompts_per_step"]
        self._rows, self._task, self._begin, self._done = rows, task, done, done
        self.metrics = {}
        """What `look` found in the newest step: metric of grpoflow -> value."""

    def __len__(self):
        return self._task["steps"]

    def __iter__(self):
        for step in range(self._begin, len(self)):
            first = step * self.batch_size
            yield [self._rows[row] for row in range(first, first + self.batch_size)]

    def state_dict(self):
        """Return nothing: the number of the step says where to go on."""
        return {}

    def watch(self, prepare_batch):
        """Return AReaL's function `prepare_batch` with a look at each batch."""

        def prepare_and_look(*args, **named):
            batch = prepare_batch(*args, **named)
            self._done += 1
            self.look(local(batch))
            return batch

        return prepare_and_look

    def look(self, groups):
        """Measure a step's completions, and write the first ones.

        Args:
            groups: of each prompt, the completions as lists: ids, versions of the ids, reward.
        """
        task, ages, lengths, cut = self._task, Counter(), [], 0
        for group in groups:
            for ids, versions, _ in group:
                made = [version for version in versions if version >= 0]
                lengths.append(len(made))
                ages.update(self._done - 1 - version for version in made)
                cut += not made or ids[-1] not in task["end_ids"]
        rewards = [[reward for *_, reward in group] for group in groups]
        every = [reward for group in rewards for reward in group]
        tokens = sum(lengths)
        self.metrics.clear()
        self.metrics.update(
            {
                "grpoflow/tokens": tokens,
                "grpoflow/completions": len(lengths),
                "grpoflow/completion_length": fmean(lengths),
                "grpoflow/completion_length_max": max(lengths),
                "grpoflow/completion_cut_share": cut / len(lengths),
                "grpoflow/reward_std": pstdev(every),
                "grpoflow/zero_variance_share": fmean(min(group) == max(group) for group in rewards),
                "grpoflow/staleness": sum(age * count for age, count in ages.items()) / max(1, tokens),
                "grpoflow/staleness_max": max(ages, default=0),
            }
        )
        oldest = max([task["staleness"], *ages])
        shares = {age: ages[age] / max(1, tokens) for age in range(oldest + 1)}
        self.metrics.update({f"grpoflow/staleness_share/{age}": share for age, share in shares.items()})
        if task["completions"] is not None:
            self._write([completion for group in groups for completion in group])

    def _write(self, completions):
        """Write the step's first completions; remove the files that the workflow wrote of all."""
        task, count = self._task, 0
        wanted = task["logged_completions"] if self._done % task["completions_every"] == 0 else 0
        files = [Path(task["episodes"]) / name(ids, versions) for ids, versions, _ in completions]
        with open(task["completions"], "a", encoding="utf-8") as out:
            for file in files:
                if count < wanted and file.is_file():
                    row = {"step": self._done, **json.loads(file.read_text(encoding="utf-8"))}
                    out.write(json.dumps(row, ensure_ascii=False) + "\n")
                    count += 1
        for file in files:
            file.unlink(missing_ok=True)


def name(ids, versions):
    """Return the name of the file with a completion's text: of its tokens and their versions."""
    return hashlib.sha256(json.dumps([ids, versions]).encode()).hexdigest()


def local(batch):
    """Return the completions of each prompt as lists, from tensors that AReaL's workers keep.

    They are fetched past AReaL's cache, of which the driver's part is never cleared.
    """
    keys = ("input_ids", "versions", "attention_mask", "rewards")
    fetched = iter(get_backend().fetch([group[key].shard for group in batch for key in keys]))
    groups = []
    for _ in batch:
        ids, versions, mask, rewards = (next(fetched).tolist() for _ in keys)
        lengths = [sum(row) for row in mask]
        groups.append(
            [
                (i[:length], v[:length], reward)
                for i, v, length, reward in zip(ids, versions, lengths, rewards, strict=True)
            ]
        )
    return groups
