"""verl's agent loops for vLLM, which give each sample of a group its own seed, so that a run can be repeated.

actor_rollout_ref.rollout.agent.agent_loop_config_path = seeded_loops.yaml, next to this file, replaces the
built-in loops of the same names. vLLM samples a request that has a seed with a generator of its own, whatever
else is in its batch. It is a module without a package, because grpoflow_verl_cpu is for CPUs only.
"""
# mypy: ignore-errors

import hashlib
import json

from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop


def seed_of(*identity):
    """Return a seed that depends only on the identity, a sequence of JSON values."""
    digest = hashlib.sha256(json.dumps(identity).encode()).digest()
    return int.from_bytes(digest[:6], "big")


class Seeded:
    """An agent loop that gives each turn of a sample its own seed."""

    async def run(self, sampling_params, **kwargs):
        """Run the loop with seeds of its row and position in the group."""
        step, row, position = kwargs.get("global_steps"), str(kwargs["index"]), int(kwargs["session_id"])
        identity = (self.rollout_config.seed, None if step is None else int(step), row, position)
        self.server_manager = _Turns(self.server_manager, identity)  # the loop is for this sample only
        return await super().run(sampling_params, **kwargs)


class _Turns:
    """verl's client of servers, which adds a seed to each request of a sample.

    With one seed for all turns, tokens at the same position of two turns would be drawn with the same noise.
    """

    def __init__(self, client, identity):
        self._client, self._identity, self._turn = client, identity, 0

    async def generate(self, *args, sampling_params, **kwargs):
        turn = (self._turn,) if self._turn else ()
        self._turn += 1
        seeded = {**sampling_params, "seed": seed_of(*self._identity, *turn)}
        return await self._client.generate(*args, sampling_params=seeded, **kwargs)


class SingleTurn(Seeded, SingleTurnAgentLoop):
    """verl's single_turn_agent."""
