"""Turns a matplotlib figure into inline SVG that follows the page's colours, fonts and dark mode."""

import io
import re
from xml.etree import ElementTree

import matplotlib
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from stages.report.text import neutral

SVG = "{http://www.w3.org/2000/svg}"
XLINK = "{http://www.w3.org/1999/xlink}"
WIDTH, HEIGHT = 460, 232
"""Size of a figure in px; text is sized for a column of about this width."""

# Drawn in these colours, which nothing else uses, and replaced by the page's CSS variables, so that
# one drawing serves light and dark.
INK, MUTED, LINE = "#010100", "#010200", "#010300"
COLOURS = ("#010400", "#010500", "#010600", "#010700", "#010800", "#010900")
_VARIABLES = {
    INK: "var(--ink)", MUTED: "var(--muted)", LINE: "var(--line)",
    **{colour: f"var(--c{i + 1})" for i, colour in enumerate(COLOURS)},
}  # fmt: skip
# Text stays text (selectable, in the page's font), and ids come from the content, not from a clock.
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "report", "path.simplify": True, "font.size": 11.0}


def axes() -> tuple[Figure, Axes]:
    """Create an empty figure in the report's style: no frame, a faint grid, quiet tick labels."""
    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72))
    FigureCanvasSVG(figure)
    figure.patch.set_visible(False)
    plot = figure.add_axes((0.115, 0.12, 0.80, 0.83))
    plot.patch.set_visible(False)
    for side, spine in plot.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(MUTED)
        spine.set_linewidth(0.8)
    plot.grid(axis="y", color=LINE, linewidth=0.8)
    plot.set_axisbelow(True)
    plot.tick_params(length=0, pad=6, labelcolor=MUTED, labelsize=11)
    return figure, plot


def inline(figure: Figure, name: str, alt: str) -> Markup:
    """Return the figure as an `<svg>` element for HTML.

    Args:
        figure: drawn with the colours of this module and no text that a model or user wrote.
        name: unique on the page; prefixes every id.
        alt: what the figure shows, for readers who do not see it.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        figure.savefig(
            buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None}
        )
    root = ElementTree.fromstring(buffer.getvalue())  # noqa: S314 (matplotlib wrote it a moment ago)
    values = " ".join(value for element in root.iter() for value in element.attrib.values())
    referenced = set(re.findall(r"(?:^|url\(|\s)#([\w-]+)", values))
    for element in root.iter():
        _clean(element, name, referenced)
    body = "".join(ElementTree.tostring(child, encoding="unicode") for child in root)
    body = body.replace("ns0:", "").replace(' xmlns:ns0="http://www.w3.org/2000/svg"', "")
    body = re.sub(r">\s+<", "><", body)
    for colour, variable in _VARIABLES.items():
        body = body.replace(colour, variable)
    opening = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">').format(
        WIDTH, HEIGHT, neutral(alt)
    )
    return opening + Markup(body) + Markup("</svg>")  # noqa: S704 (drawn here; holds numbers only)


def _clean(element: ElementTree.Element, name: str, referenced: set[str]) -> None:
    # matplotlib's metadata and its style sheet for `*` would apply to the whole page.
    for child in list(element):
        if child.tag == SVG + "metadata" or (
            child.tag == SVG + "defs" and child.find(SVG + "style") is not None
        ):
            element.remove(child)
    for key, value in list(element.items()):
        if key == "id" and value not in referenced:
            del element.attrib[key]
        elif key == "id":
            element.set(key, f"{name}-{value}")
        elif key == XLINK + "href":
            del element.attrib[key]
            element.set("href", f"#{name}-{value[1:]}")
        elif "url(#" in value:
            element.set(key, value.replace("url(#", f"url(#{name}-"))
        elif key == "style" and element.tag == SVG + "text":
            element.set(key, re.sub(r"font:[^;]*;?|font-(family|size):[^;]*;?", "", value).strip())
        elif key == "d":
            element.set(key, re.sub(r"\s+", " ", re.sub(r"(\.\d\d)\d+", r"\1", value)).strip())
