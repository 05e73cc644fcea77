"""verl's agent loops for vLLM, which give each sample of a group its own seed, so that a run can be repeated.

actor_rollout_ref.rollout.agent.agent_loop_config_path = seeded_loops.yaml, next to this file, replaces the
built-in loops of the same names. vLLM samples a request that has a seed with a generator of its own, whatever
else is in its batch. It is a module without a package, because grpoflow_verl_cpu is for CPUs only.
"""
# mypy: ignore-errors

import hashlib
import json

from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl.experimental.agent_loop.tool_agent_loop import ToolAgentLoop


def seed_of(*identity):
    """Return a seed that depends only on the identity, a sequence of JSON values."""
    digest = hashlib.sha256(json.dumps(identity).encode()).digest()
    return int.from_bytes(digest[:6], "big")


class _Seeded:
    async def run(self, sampling_params, **kwargs):
        step, row, position = kwargs.get("global_steps"), str(kwargs["index"]), int(kwargs["session_id"])
        seed = seed_of(self.rollout_config.seed, None if step is None else int(step), row, position)
        return await super().run({**sampling_params, "seed": seed}, **kwargs)


class SingleTurn(_Seeded, SingleTurnAgentLoop):
    """verl's single_turn_agent."""


class Tool(_Seeded, ToolAgentLoop):
    """verl's tool_agent."""
