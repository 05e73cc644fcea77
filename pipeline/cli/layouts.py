"""`grpoflow layouts`: list valid parallel layouts."""

from argparse import Namespace
from pathlib import Path

from pipeline.cli.command import Commands
from pipeline.errors import Exit
from pipeline.plan import layouts as planned
from pipeline.plan.layouts import draw, find, show
from pipeline.terminal import as_json, console


def register(commands: Commands) -> None:
    """Add `layouts`."""
    parser = commands.add(
        "layouts",
        layouts,
        "list all valid layouts with their memory per card, best first",
        "model=qwen2_5_7b cards=8 engine.device_memory_gib=64",
        "model=qwen2_5_72b cards=64 layout.train.recompute=true --json",
        "model=qwen2_5_7b layout=dp1_mp4_pp2 --picture layout.svg",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="machine-readable output, with the reasons for every refused layout",
    )
    parser.add_argument(
        "--picture",
        type=Path,
        metavar="FILE.svg",
        help="draw which card holds which parameters, for the first layout",
    )


def layouts(options: Namespace) -> int:
    """List every valid layout, best first; with --picture, draw the first."""
    choices, refused = find(options.overrides, options.config_dir)
    if options.picture is not None:
        draw(choices[0], options.picture)
    if options.json:
        print(as_json(planned.as_json(choices, refused)))
    else:
        show(choices, refused, console())
        if options.picture is not None:
            print(f"{options.picture}: {choices[0].config.layout.name}, train role")
    return Exit.DONE
