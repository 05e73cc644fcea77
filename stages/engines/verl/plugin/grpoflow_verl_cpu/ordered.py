"""A replay buffer that returns the rows of a step in a fixed order.

verl's buffer returns them in the order of their completion, which differs between runs and decides how they
are divided into mini-batches and summed. trainer.v1.sampler.custom_sampler selects this class.
"""
# mypy: ignore-errors

import transfer_queue
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

POLL_S = 0.05
"""Polling interval. With verl's 2 s, a small model would wait most of the time."""


class OrderedReplayBuffer(ReplayBuffer):
    """verl's ReplayBuffer, ordered by row of the data set, prompt, position in the group, and turn."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs, poll_interval=POLL_S)

    def _materialize_batch(self, *args):
        batch = super()._materialize_batch(*args)
        names = ["index", "prompts"]
        data = transfer_queue.kv_batch_get(batch.keys, batch.partition_id, select_fields=names)
        positions = [tuple(map(int, key.rsplit("_", 2)[1:])) for key in batch.keys]
        prompts = [prompt.tolist() for prompt in data["prompts"].unbind()]
        rows = list(zip(map(str, data["index"]), prompts, positions, strict=True))
        batch.reorder(sorted(range(len(rows)), key=rows.__getitem__))
        return batch
