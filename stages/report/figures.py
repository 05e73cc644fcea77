"""Figures drawn with matplotlib, once for light and once for dark pages, as images inside the page."""

import base64
import io
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

WIDTH, HEIGHT = 460, 232
"""Size of a figure in px; text is sized for a column of about this width."""
SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "report",  # equal runs give equal bytes
    "font.size": 11.0,
    "path.simplify_threshold": 0.3,  # px
    "font.sans-serif": ["DejaVu Sans", "Arial"],
}
NO_METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}


@dataclass(frozen=True)
class Palette:
    """Colours of one scheme; style.css has the same."""

    muted: str
    line: str
    colours: tuple[str, ...]


LIGHT = Palette("#5f676e", "#e6e3dc", ("#1f6f78", "#c07a1b", "#7a5195", "#b5485d", "#4c7a3f", "#5b6b8c"))
DARK = Palette("#9ba4aa", "#2d3439", ("#63bcc4", "#e2a94f", "#b797d6", "#e58a9a", "#8fc07f", "#9cafd2"))
MAX_LINES = len(LIGHT.colours)


@dataclass(frozen=True)
class Image:
    """One figure as data URLs, and its content in words for readers who do not see it."""

    light: str
    dark: str
    alt: str


def image(draw: Callable[[Axes, Palette], None], alt: str) -> Image:
    """Return the figure that `draw` paints, in both colour schemes."""
    return Image(_data_url(draw, LIGHT), _data_url(draw, DARK), alt)


def _data_url(draw: Callable[[Axes, Palette], None], palette: Palette) -> str:
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        FigureCanvasSVG(figure)
        axes = figure.add_axes((0.115, 0.12, 0.80, 0.83), facecolor="none")
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.spines["bottom"].set_color(palette.muted)
        axes.grid(axis="y", color=palette.line, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, pad=6, labelcolor=palette.muted, labelsize=11)
        draw(axes, palette)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata=NO_METADATA)
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"
