"""`grpoflow diagnose`: what the logs of a failed run say. Needs no store and no configuration."""

from __future__ import annotations

from argparse import Namespace

from launch import diagnose as logs
from pipeline.errors import ConfigError, Problem

EXIT_KNOWN, EXIT_UNKNOWN = 0, 1


def diagnose(options: Namespace) -> int:
    """Show the cause; exit 1 when the logs hold none that is known."""
    found = logs.diagnose(options.logs)
    if not found.logs:
        remedy = "give the directory of worker_K.log, or a log itself"
        raise ConfigError([Problem("LOG_DIR", options.logs, "holds no *.log, *.out or *.err", remedy)])
    print(logs.as_json(found) if options.json else "\n".join(found.lines()))
    return EXIT_KNOWN if found.known else EXIT_UNKNOWN
