"""Keys of AReaL's GRPOConfig: `PYTHON schema.py [CHECKOUT]` in AReaL's interpreter.

It prints {"defaults": {KEY: DEFAULT}, "open": [GROUP]} as JSON (stages/engines/upstream_keys.py).
"""
# mypy: ignore-errors

import contextlib
import dataclasses
import json
import sys
import typing

OPEN = ("actor.scheduling_spec", "ref.scheduling_spec", "rollout.scheduling_spec")
"""Lists of groups."""
PLAIN = (bool, int, float, str, type(None))


def leaves(cls, path=""):
    """Yield dotted key and default of all fields below a dataclass."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        name = f"{path}.{field.name}" if path else field.name
        kinds = [hints[field.name], *typing.get_args(hints[field.name])]
        group = next((kind for kind in kinds if dataclasses.is_dataclass(kind)), None)
        if group is not None and name not in OPEN:
            yield from leaves(group, name)
        elif name not in OPEN:
            default = field.default if isinstance(field.default, PLAIN) else None
            yield name, None if default == "???" else default


if __name__ == "__main__":
    sys.path[:0] = sys.argv[1:]
    with contextlib.redirect_stdout(sys.stderr):
        from areal.api.cli_args import GRPOConfig

        defaults = dict(leaves(GRPOConfig))
    print(json.dumps({"defaults": defaults, "open": OPEN}))
