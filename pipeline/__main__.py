"""`python -m pipeline -m KEY=A,B`: a sweep with Hydra's syntax; without -m the same as `grpoflow run`.

`--cfg job` and `--info defaults` print the configuration same as in any Hydra application.
"""

import sys

from pipeline.cli import main

SHOW = {"--cfg", "-c", "--info", "-i", "--hydra-help"}
"""Hydra options that only print the configuration."""

if __name__ == "__main__":
    arguments = sys.argv[1:]
    multirun = {"-m", "--multirun"} & set(arguments)
    if SHOW & set(arguments):
        import hydra

        hydra.main(version_base="1.3", config_path="pkg://conf", config_name="config")(lambda config: None)()
        sys.exit()
    remaining = [argument for argument in arguments if argument not in multirun]
    sys.exit(main(["sweep" if multirun else "run", *remaining]))
