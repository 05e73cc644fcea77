"""Shifts the log-probabilities of sampled tokens, for tests of rollout.correction.

Python imports this file when it starts, if its directory is on PYTHONPATH. It changes the agent loop of
grpoflow's plugin for verl on a CPU as soon as that is imported: a rollout then has probabilities that differ
from the trained model's by factors that a test knows.
"""

import sys
from importlib.machinery import PathFinder

from shift import shift


class ShiftedLoop:
    """Finds the plugin's module, and changes it after its import."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "grpoflow_verl_cpu.agent_loops":
            return None
        spec = PathFinder.find_spec(name, path, target)
        execute = spec.loader.exec_module

        def execute_and_change(module):
            execute(module)
            change(module.SingleTurn)

        spec.loader.exec_module = execute_and_change
        return spec


def change(loop):
    """Shift what an agent loop returns."""
    original = loop.run

    async def run(self, sampling_params, **kwargs):
        output = await original(self, sampling_params, **kwargs)
        pairs = zip(output.response_ids, output.response_logprobs, strict=True)
        output.response_logprobs = [value + shift(token) for token, value in pairs]
        return output

    loop.run = run


sys.meta_path.insert(0, ShiftedLoop)
