"""`grpoflow layouts`: list valid parallel layouts."""

from argparse import Namespace

from pipeline.cli.command import Commands, add_json
from pipeline.errors import Exit
from pipeline.plan import layouts as planned
from pipeline.plan.layouts import find, show
from pipeline.terminal import as_json, console


def register(commands: Commands) -> None:
    """Add `layouts`."""
    parser = commands.add(
        "layouts",
        layouts,
        "list all valid layouts with their memory per card, best first",
        "model=qwen2_5_7b cards=8 engine.device_memory_gib=64",
        "model=qwen2_5_72b cards=64 layout.train.recompute=true --json",
    )
    add_json(parser, "also the refused layouts, with all reasons")


def layouts(options: Namespace) -> int:
    """List every valid layout, best first."""
    choices, refused = find(options.overrides, options.config_dir)
    if options.json:
        print(as_json(planned.as_json(choices, refused)))
    else:
        show(choices, refused, console())
    return Exit.DONE
