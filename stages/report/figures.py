"""Figures drawn with matplotlib, as SVG images inside the page."""

import base64
import io
from collections.abc import Callable

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
    "font.sans-serif": ["DejaVu Sans", "Arial"],
}
MUTED, LINE = "#5f676e", "#e6e3dc"
COLOURS = ("#1f6f78", "#c07a1b", "#7a5195", "#b5485d", "#4c7a3f", "#5b6b8c")
"""Colours of the first, second, … series; style.css has the same for legends."""
MAX_LINES = len(COLOURS)


def image_url(draw: Callable[[Axes], None]) -> str:
    """Return a data: URL with the figure that `draw` paints with the colours of this module."""
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
        FigureCanvasSVG(figure)
        axes = figure.add_axes((0.115, 0.12, 0.80, 0.83), facecolor="none")  # the plot without labels
        axes.spines[["left", "right", "top"]].set_visible(False)
        axes.spines["bottom"].set_color(MUTED)
        axes.grid(axis="y", color=LINE, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, pad=6, labelcolor=MUTED, labelsize=11)
        draw(axes)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator")))
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"
