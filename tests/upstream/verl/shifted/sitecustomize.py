"""Shifts the log-probabilities of sampled tokens, for tests of rollout.correction.

Python imports this file when it starts, if its directory is on PYTHONPATH. It changes the agent loop of
grpoflow's plugin for verl on a CPU as soon as that is imported: a rollout then has probabilities that differ
from the trained model's by factors that a test knows.
"""

import sys
from pathlib import Path

from shift import shift

sys.path.append(str(Path(__file__).parents[2] / "hooks"))
from after_import import change_after_import


def change(module):
    """Shift what the agent loop returns."""
    loop = module.SingleTurn
    original = loop.run

    async def run(self, sampling_params, **kwargs):
        output = await original(self, sampling_params, **kwargs)
        pairs = zip(output.response_ids, output.response_logprobs, strict=True)
        output.response_logprobs = [value + shift(token) for token, value in pairs]
        return output

    loop.run = run


change_after_import({"grpoflow_verl_cpu.agent_loops": change})
