"""Transfer of weights from training workers to rollout workers with devices of their own, on a CPU.

verl's own transfers (nccl, nixl, mooncake) need cards or packages for them. This one passes all tensors of a
version through Ray's object store. The rollout's checkpoint_engine.custom_backend_module names this module.
"""
# mypy: ignore-errors
# ruff: noqa: D102  the methods are described in verl/checkpoint_engine/base.py

import asyncio

import ray
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry

MAILBOX = "grpoflow_weights"
"""Name of the actor through which workers exchange references to weights."""


class Mailbox:
    """References to the weights of versions, each until all receivers have them."""

    def __init__(self):
        self._sent = asyncio.Condition()
        self._references = {}

    async def put(self, version, references):
        """Offer the weights of a version; those of earlier ones are forgotten."""
        async with self._sent:
            self._references = {version: references}
            self._sent.notify_all()

    async def take(self, version):
        """Return the weights of a version as soon as they are here."""
        async with self._sent:
            await self._sent.wait_for(lambda: version in self._references)
            return self._references[version]


def mailbox():
    """Return the run's mailbox."""
    return ray.remote(Mailbox).options(name=MAILBOX, get_if_exists=True, num_cpus=0).remote()


@CheckpointEngineRegistry.register("grpoflow_ray")
class RayCheckpointEngine(CheckpointEngine):
    """Weights as one object of Ray's object store, sent by the first training worker."""

    def __init__(self, bucket_size, is_master=False):
        self._is_sender = False
        self._mailbox = mailbox()  # kept: an actor ends when its creator drops the handle

    def prepare(self):
        return {}

    @classmethod
    def build_topology(cls, actor_wg_world_size, rollout_world_size, metadata):
        senders = [rank == 0 for rank in range(actor_wg_world_size)]
        return {"is_sender": senders}, {"is_sender": [False] * rollout_world_size}

    def init_process_group(self, is_sender):
        self._is_sender = is_sender

    def finalize(self):
        """Do nothing: there is no buffer."""

    async def send_weights(self, weights, global_steps=None):
        # all workers take part in gathering the shards
        tensors = {name: tensor.detach().clone() for name, tensor in weights}
        if self._is_sender:
            await self._mailbox.put.remote(global_steps, [ray.put(tensors)])

    async def receive_weights(self, global_steps=None):
        (reference,) = await self._mailbox.take.remote(global_steps)
        for item in (await reference).items():
            yield item
