"""A layout's picture as an SVG file; it follows the viewer's light or dark mode."""

from dataclasses import asdict

from stages.base.errors import ConfigError, Problem
from stages.base.layout import RoleLayout
from stages.models.config import ModelConfig
from stages.models.memory import elements, shown, weights
from stages.report.layout_picture import MAX_CARDS, picture
from stages.report.templates import environment, file_content


def layout_svg(model: ModelConfig, layout: RoleLayout) -> str:
    """Return a picture of the layers, weight slices and bytes of each card.

    Raises:
        ConfigError: the layout does not fit the model, or is too large to draw.
    """
    per_stage = layout.cards // layout.pipeline_stage
    parts = elements(model, layout, "layout.train")
    sizes = [weights(stage.held, model.param_init_type).low for stage in parts]
    labels = {rank: shown(*[sizes[rank // per_stage]] * 2) for rank in range(layout.cards)}
    drawn = picture("train", asdict(layout), model.num_hidden_layers, labels)
    if drawn is None:
        raise ConfigError([Problem("layout.train", layout.name, f"at most {MAX_CARDS} cards are drawn")])
    colours = file_content("style.css").partition("@media print")[0]
    return (
        environment().get_template("layout.svg.jinja").render(picture=drawn, colours=colours).strip() + "\n"
    )
