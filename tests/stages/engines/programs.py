"""How tests render the files of a stage that an outside program computes."""

import importlib


def render(stage, config, inputs, work):
    """Return the rendered files and the start of a stage's program."""
    module = importlib.import_module(stage.program.module)
    return module.render(config.plain(), inputs, work)
