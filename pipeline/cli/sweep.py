"""`grpoflow sweep`: several configurations (points) as one graph."""

from argparse import Namespace

from pipeline.cli.command import Commands, add_json, add_target, bounded, target_of
from pipeline.errors import ConfigError, Problem
from pipeline.sweep.build import Sweep


def register(commands: Commands) -> None:
    """Add `sweep`."""
    parser = commands.add(
        "sweep",
        sweep,
        "run several configurations (points) as one graph; shared stages run once",
        "-m train.beta=0.0,0.01 seed=0,1",
    )
    add_target(parser)
    parser.add_argument(
        "-m", "--multirun", action="store_true", help="implied; accepted for compatibility with Hydra"
    )
    parser.add_argument("--plan", action="store_true", help="show the merged graph without starting it")
    add_json(parser, "with --plan, a line per point")
    parser.add_argument(
        "--cards",
        type=bounded(1, 1 << 20),
        metavar="N",
        help="cards of this machine (default: largest point)",
    )


def sweep(options: Namespace) -> int:
    """Run or plan the points of a sweep as one graph."""
    if options.json and not options.plan:
        rule = "is for --plan; results are in the store, in sweeps/ID/sweep.json"
        raise ConfigError([Problem("--json", None, rule, "add --plan")])
    planned = Sweep(options.overrides, options.config_dir, target_of(options), options.cards)
    return planned.show_plan(options.json) if options.plan else planned.run()
