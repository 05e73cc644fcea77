"""An agent loop of a user, for rollout.agent; only verl's interpreter imports it."""

from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop


class Twice(SingleTurnAgentLoop):
    """Asks twice and keeps the second answer."""

    async def run(self, sampling_params, **kwargs):
        await super().run(sampling_params, **kwargs)
        return await super().run(sampling_params, **kwargs)
