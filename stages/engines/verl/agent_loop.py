"""The agent loop of a run with several turns per completion, for verl's interpreter.

configs/agent_loops.yaml names `make`, with which verl builds a loop for each completion. Only verl's
interpreter imports this file: as grpoflow_agents, from a copy next to copies of stages/base and
stages/rewards (agent.py).
"""
# mypy: ignore-errors

import importlib

TURN_START = "grpoflow_turn_start"
"""Key of extra_fields: position in the completion at which its last turn begins."""
CALLS, FAILED = "grpoflow_tool_calls", "grpoflow_tool_failures"
"""Keys of extra_fields: calls of functions, and those without an answer of the function."""
FAULTS = ("Unknown function '", "Invalid JSON in arguments for '", "Error executing tool '")
"""Beginnings of what verl answers to a call that fails (tool_agent_loop.py, _call_tool)."""


def make(loop, sample, **settings):
    """Return verl's agent loop for one completion.

    Args:
        loop: module:Class of an agent loop.
        sample: module:Class of the plugin that makes samples repeatable, or None.
        settings: what verl gives to an agent loop.
    """
    base = _load(loop)
    counting = (Counting,) if hasattr(base, "_call_tool") else ()
    named = () if sample is None else (_load(sample),)
    return type(base.__name__, (Reporting, *counting, *named, base), {})(**settings)


def _load(name):
    module, _, attribute = name.partition(":")
    return getattr(importlib.import_module(module), attribute)


class Reporting:
    """An agent loop that says where the last turn of a completion begins."""

    async def run(self, sampling_params, **kwargs):
        """Return verl's output with TURN_START."""
        made = await super().run(sampling_params, **kwargs)
        for output in made if isinstance(made, list) else [made]:
            start = len(output.response_mask)
            while start and output.response_mask[start - 1]:
                start -= 1
            output.extra_fields[TURN_START] = start
        return made


class Counting:
    """verl's ToolAgentLoop, which counts calls."""

    async def run(self, sampling_params, **kwargs):
        """Return verl's output with CALLS and FAILED."""
        self.calls = self.failures = 0
        made = await super().run(sampling_params, **kwargs)
        made.extra_fields |= {CALLS: self.calls, FAILED: self.failures}
        return made

    async def _call_tool(self, *args, **kwargs):
        done = await super()._call_tool(*args, **kwargs)
        self.calls += 1
        self.failures += (done[0].text or "").startswith(FAULTS)
        return done
