"""`grpoflow diagnose`: the cause of a failure from logs alone, without a store or a configuration."""

from argparse import Namespace
from pathlib import Path

from launch.diagnose import diagnosis as logs
from pipeline.cli.command import Commands, add_json
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.terminal import as_json


def register(commands: Commands) -> None:
    """Add `diagnose`."""
    parser = commands.add(
        "diagnose",
        diagnose,
        "show the cause of a failure and its remedy from logs alone (exit 1: cause unknown)",
        "store/.logs/grpo-0123456789abcdef",
        "output/msrun_log --json",
    )
    parser.add_argument(
        "logs", type=Path, metavar="LOG_DIR", help="directory of msrun or grpoflow logs, or a single log file"
    )
    add_json(parser)


def diagnose(options: Namespace) -> int:
    """Show the cause; exit 1 if it is unknown."""
    diagnosis = logs.diagnose(options.logs)
    if not diagnosis.logs:
        remedy = "give the directory of worker_K.log, or a log itself"
        raise ConfigError([Problem("LOG_DIR", options.logs, "holds no *.log, *.out or *.err", remedy)])
    print(as_json(diagnosis.to_json()) if options.json else "\n".join(diagnosis.lines()))
    return Exit.DONE if diagnosis.known else Exit.FAILED
