"""verl's agent loops, which also send the sample's identity to the rollout.

actor_rollout_ref.rollout.agent.agent_loop_config_path = agent_loops.yaml of this package replaces the
built-in loops of the same names (verl/experimental/agent_loop/agent_loop.py AgentLoopWorker).
"""
# mypy: ignore-errors

from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop

IDENTITY = "grpoflow_identity"
"""Key of the sampling parameters: the row's extra_info.index and the sample's position in its group."""


class Identified:
    """An agent loop that sends the sample's identity with each request."""

    async def run(self, sampling_params, **kwargs):
        """Run the loop with the identity in its sampling parameters."""
        identity = (str(kwargs["index"]), int(kwargs["session_id"]))
        return await super().run({**sampling_params, IDENTITY: identity}, **kwargs)


class SingleTurn(Identified, SingleTurnAgentLoop):
    """verl's single_turn_agent."""
