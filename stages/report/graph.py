"""The stages of a run as a picture: the graph of what reads what, and when each stage worked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from stages.catalog import STAGES
from stages.report.details import Span
from stages.report.language import translate

WIDTH, HEIGHT = 112, 58
"""Size of a node in px of the SVG's coordinates."""
COLUMN, ROW = 136, 76
"""Distance of columns and rows."""
BREAK_S = 60.0
"""Pauses that are longer, and longer than a twentieth of the work, are cut out of the time axis."""


@dataclass(frozen=True)
class Shown:
    """State, duration and links that a node shows of its stage."""

    state: str = ""
    """built, cached, running, waiting, failed, …; empty in a picture of the graph alone."""
    detail: str = ""
    """How long it took, or how far it is."""
    log: str = ""
    """URL of its log; empty without one."""


@dataclass(frozen=True)
class Node:
    """One stage at its place; x and y are its upper left corner."""

    stage: str
    x: int
    y: int
    shown: Shown


@dataclass(frozen=True)
class Graph:
    """The picture."""

    width: int
    height: int
    nodes: Sequence[Node]
    edges: Sequence[str]
    """Paths from a stage to one that reads its artifact. What another path already says is left out."""
    alt: str
    """The graph in words."""


def declared(stages: Sequence[str]) -> dict[str, list[str]]:
    """Return the stages that each stage reads, as the catalog declares it for a run of these stages."""
    reads: dict[str, list[str]] = {}
    for stage in stages:
        names = [*STAGES[stage].inputs.values()] if stage in STAGES else []
        # supervised training stands between split and the stages that would read split's weights
        names += ["sft"] if stage in ("grpo", "evaluate") else []
        names += [name for name in stages if name != "report"] if stage == "report" else []
        reads[stage] = [name for name in dict.fromkeys(names) if name in stages]
    return reads


def graph(reads: Mapping[str, Sequence[str]], shown: Mapping[str, Shown]) -> Graph:
    """Return the picture of a graph: stage -> stages whose artifacts it reads.

    Every stage stands as far to the right as the stages that read it allow, so that lines are short.
    """
    direct = _reduced(reads)
    depths, columns = _columns(direct)
    rows: dict[int, int] = {}
    nodes: dict[str, Node] = {}
    for stage in sorted(reads, key=lambda stage: -depths[stage]):  # the longest chain is the upper row
        column = columns[stage]
        row = rows.get(column, 0)
        rows[column] = row + 1
        nodes[stage] = Node(stage, column * COLUMN + 4, row * ROW + 4, shown.get(stage, Shown()))
    edges = [_path(nodes[name], nodes[stage]) for stage, names in direct.items() for name in names]
    width = (max(columns.values(), default=0) + 1) * COLUMN - (COLUMN - WIDTH) + 8
    height = max(rows.values(), default=1) * ROW - (ROW - HEIGHT) + 8
    ordered = [nodes[stage] for stage in reads]
    alt = ". ".join(_words(node, direct[node.stage]) for node in ordered)
    title = translate("Graph of {count} stages.", count=len(nodes))
    return Graph(width, height, ordered, edges, f"{title} {alt}.")


def _words(node: Node, names: Sequence[str]) -> str:
    facts = ", ".join(filter(None, [translate(node.shown.state), node.shown.detail]))
    stage = f"{node.stage} ({facts})" if facts else node.stage
    return translate("{stage} reads {names}", stage=stage, names=", ".join(names)) if names else stage


def _reduced(reads: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the direct inputs of each stage without those that another of its inputs already needs."""
    above: dict[str, set[str]] = {}

    def ancestors(stage: str, path: frozenset[str] = frozenset()) -> set[str]:
        if stage not in above:
            names = {name for name in reads.get(stage, ()) if name not in path and name != stage}
            below = path | {stage}
            above[stage] = names.union(*(ancestors(name, below) for name in names))
        return above[stage]

    return {
        stage: [
            name
            for name in names
            if name in reads
            and name != stage
            and not any(name in ancestors(other) for other in names if other != name)
        ]
        for stage, names in reads.items()
    }


def _columns(direct: Mapping[str, Sequence[str]]) -> tuple[dict[str, int], dict[str, int]]:
    """Return how many stages stand before each one, and its column: just before the first that reads it."""
    depth: dict[str, int] = {}
    for _ in direct:  # as often as the longest path may be
        for stage, names in direct.items():
            depth[stage] = max((depth.get(name, 0) + 1 for name in names), default=0)
    columns = dict(depth)
    for stage in sorted(direct, key=lambda stage: -depth[stage]):
        readers = [columns[reader] for reader, names in direct.items() if stage in names]
        columns[stage] = max(depth[stage], min(readers) - 1) if readers else depth[stage]
    return depth, columns


def _path(start: Node, end: Node) -> str:
    x1, y1 = start.x + WIDTH, start.y + HEIGHT // 2
    x2, y2 = end.x, end.y + HEIGHT // 2
    gap = COLUMN - WIDTH
    if x2 - x1 <= gap:
        return f"M{x1},{y1} C{x1 + gap},{y1} {x2 - gap},{y2} {x2},{y2}"
    # past the nodes of the columns between, below the upper of both rows
    between, half = min(start.y, end.y) + (HEIGHT + ROW) // 2, gap // 2
    return (
        f"M{x1},{y1} C{x1 + half},{y1} {x1 + half},{between} {x1 + gap},{between} "
        f"L{x2 - gap},{between} C{x2 - half},{between} {x2 - half},{y2} {x2},{y2}"
    )


@dataclass(frozen=True)
class Bar:
    """One stage on the time axis, in percent of its width."""

    left: float
    width: float


@dataclass(frozen=True)
class Gap:
    """Time without work that was cut out of the axis."""

    at: float
    seconds: float


def bars(stages: Sequence[Span]) -> tuple[list[Bar], list[Gap]]:
    """Return a bar for each stage, and the cuts.

    A reused stage worked before the run began, so that its bar has its length but stands at the left edge.
    """
    ran = sorted((span.started, span.ended) for span in stages if not span.reused)
    busy: list[tuple[float, float]] = []
    for start, end in ran:
        if busy and start <= busy[-1][1]:
            busy[-1] = (busy[-1][0], max(busy[-1][1], end))
        else:
            busy.append((start, end))
    work = sum(end - start for start, end in busy)
    cuts = [(end, start) for (_, end), (start, _) in pairwise(busy) if start - end > max(BREAK_S, work / 20)]
    cut_s = work / 50

    def place(time: float) -> float:
        before = [(begin, end) for begin, end in cuts if end <= time]
        return time - busy[0][0] - sum(end - begin - cut_s for begin, end in before)

    longest = max((span.ended - span.started for span in stages if span.reused), default=0.0)
    total = max(place(busy[-1][1]) if busy else 0.0, longest, 1e-9)
    result = []
    for span in stages:
        left = 0.0 if span.reused else place(span.started)
        result.append(Bar(100 * left / total, max(0.3, 100 * (span.ended - span.started) / total)))
    return result, [Gap(100 * place(begin) / total, end - begin) for begin, end in cuts]
