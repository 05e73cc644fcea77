"""The plugin's agent loop with shifted log-probabilities, for tests of rollout.correction."""

from grpoflow_verl_cpu.agent_loops import SingleTurn
from shift import shift


class Shifted(SingleTurn):
    """A rollout whose probabilities differ from the trained model's by factors that a test knows."""

    async def run(self, sampling_params, **kwargs):
        output = await super().run(sampling_params, **kwargs)
        pairs = zip(output.response_ids, output.response_logprobs, strict=True)
        output.response_logprobs = [value + shift(token) for token, value in pairs]
        return output
