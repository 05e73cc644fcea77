"""`grpoflow sweep`."""

from argparse import Namespace

from pipeline.cli.command import Commands, add_configuration, add_target, target_of
from pipeline.sweep.build import Asked
from pipeline.sweep.expand import expand


def register(commands: Commands) -> None:
    """Add `sweep`."""
    parser = commands.add(
        "sweep",
        sweep,
        "run many points as one graph; what they share runs once",
        "-m train.beta=0.0,0.01 seed=0,1",
    )
    add_configuration(parser)
    add_target(parser)
    parser.add_argument("-m", "--multirun", action="store_true", help="as Hydra spells it; implied")
    parser.add_argument("--plan", action="store_true", help="show the merged graph; starts nothing")
    parser.add_argument("--json", action="store_true", help="with --plan, for programs: a line per point")
    parser.add_argument(
        "--cards", type=int, metavar="N", help="cards of this machine (default: largest point)"
    )


def sweep(options: Namespace) -> int:
    """Many points as one graph."""
    target, brought = target_of(options), options.brought
    asked = Asked(options.cards, options.plan, options.json, options.config_dir, target, brought)
    return expand(options.overrides, asked)
