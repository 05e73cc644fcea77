"""`grpoflow strategy`."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path

from pipeline.cli.command import Commands, values_of
from pipeline.errors import Exit
from stages.config import read
from stages.layout import ROLES, RoleLayout
from stages.model_config import ModelConfig
from stages.strategy.layouts import warnings
from stages.strategy.stage import write_strategy


def register(commands: Commands) -> None:
    """Options of `strategy`."""
    parser = commands.add(
        "strategy",
        strategy,
        "write MindSpore strategy files from the layout alone",
        "--out DIR --role train",
        tidies=True,
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--role", choices=ROLES, default="train")
    parser.add_argument("--names", choices=("mindformers", "mindrlhf"), default="mindformers")


def strategy(options: Namespace) -> int:
    """Strategy files of one role, from the layout alone."""
    values = values_of(options)
    model = read(ModelConfig, values["model"], "model")
    path = f"layout.{options.role}"
    layout = read(RoleLayout, values["layout"][options.role], path)
    for warning in warnings(model, layout):
        print(f"warning: {path}: {warning}", file=sys.stderr)
    write_strategy(model, layout, options.out, path, options.role if options.names == "mindrlhf" else None)
    print(f"{options.out}: strategy files of {layout.cards} ranks, {layout.name}")
    return Exit.DONE
