"""Arguments of vllm.LLM: `PYTHON schema.py`, in vLLM's interpreter, prints {"defaults": {NAME: DEFAULT}}.

A default that is no plain value becomes null: any value is then accepted (stages/engines/upstream_keys.py).
"""
# mypy: ignore-errors

import dataclasses
import json

from vllm.engine.arg_utils import EngineArgs

PLAIN = (bool, int, float, str)


def default_of(field):
    """Return the default of an argument; None if it has none of a plain type."""
    return field.default if isinstance(field.default, PLAIN) else None


if __name__ == "__main__":
    print(
        json.dumps({"defaults": {field.name: default_of(field) for field in dataclasses.fields(EngineArgs)}})
    )
