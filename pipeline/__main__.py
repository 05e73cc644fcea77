"""`python -m pipeline -m KEY=A,B`: a sweep with Hydra's syntax; without -m the same as `grpoflow run`.

`--cfg job` and `--info defaults` print the configuration same as in any Hydra application.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.modules.pop("pipeline", None)  # in an editable installation it may be the user's directory
import pipeline  # noqa: E402, F401

del sys.path[0]
from pipeline.cli import main  # noqa: E402

SHOW = {"--cfg", "-c", "--info", "-i", "--hydra-help"}
"""Hydra options that only print the configuration."""

if __name__ == "__main__":
    arguments = sys.argv[1:]
    multirun = {"-m", "--multirun"} & set(arguments)
    if SHOW & set(arguments):
        import hydra

        from pipeline.config.compose import BUILT_IN, with_preset_choice

        sys.argv[1:] = with_preset_choice(arguments)
        path = str(BUILT_IN)  # not the package `conf`, which could be a directory of the user's
        hydra.main(version_base="1.3", config_path=path, config_name="config")(lambda config: None)()
        sys.exit()
    remaining = [argument for argument in arguments if argument not in multirun]
    sys.exit(main(["sweep" if multirun else "run", *remaining]))
