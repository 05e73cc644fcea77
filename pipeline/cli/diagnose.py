"""`grpoflow diagnose`: what the logs of a failed run say. Needs no store and no configuration."""

import json
from argparse import Namespace
from pathlib import Path

from launch.diagnose import diagnosis as logs
from pipeline.cli.command import Commands
from pipeline.errors import ConfigError, Exit, Problem


def register(commands: Commands) -> None:
    """Add `diagnose`."""
    parser = commands.add(
        "diagnose",
        diagnose,
        "tell from a failed run's logs what happened and what to do (exit 1: nothing known)",
        "store/.logs/grpo-0123456789abcdef",
        "output/msrun_log --json",
    )
    parser.add_argument(
        "logs", type=Path, metavar="LOG_DIR", help="msrun's or grpoflow's; or one log; anybody's"
    )
    parser.add_argument("--json", action="store_true", help="for programs")


def diagnose(options: Namespace) -> int:
    """Show the cause; exit 1 when the logs hold none that is known."""
    diagnosis = logs.diagnose(options.logs)
    if not diagnosis.logs:
        remedy = "give the directory of worker_K.log, or a log itself"
        raise ConfigError([Problem("LOG_DIR", options.logs, "holds no *.log, *.out or *.err", remedy)])
    print(json.dumps(diagnosis.to_json(), indent=1) if options.json else "\n".join(diagnosis.lines()))
    return Exit.DONE if diagnosis.known else Exit.FAILED
