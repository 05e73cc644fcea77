"""Program that starts a checkout's grpo_one_stage.py with hyper-parameters from a file.

They are fields of a dataclass of the checkout, mindrlhf/configs/grpo_configs.py, whose defaults are replaced
in this process only. Runs in the engine's interpreter, without grpoflow:
`entry.py grpo_one_stage.py values.json ARGUMENTS`.
"""

import dataclasses
import functools
import importlib
import json
import runpy
import sys
from pathlib import Path


def main(arguments: list[str]) -> None:
    """Run the script as if it had been started directly."""
    script, values, *remaining = arguments
    grpo_configs = importlib.import_module("mindrlhf.configs.grpo_configs")
    chosen = json.loads(Path(values).read_text(encoding="utf-8"))
    known = {field.name for field in dataclasses.fields(grpo_configs.GRPOConfig)}
    if unknown := sorted(chosen.keys() - known):
        sys.exit(f"{grpo_configs.__file__}: GRPOConfig has no {', '.join(unknown)}")
    vars(grpo_configs)["GRPOConfig"] = functools.partial(grpo_configs.GRPOConfig, **chosen)
    sys.argv = [script, *remaining]
    sys.path[0] = str(Path(script).parent)
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
