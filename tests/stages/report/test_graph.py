"""The picture of the stages, and when each of them worked."""

import itertools

import pytest

from pipeline.config.load import load
from pipeline.plan.graph import stages
from stages.report.details import Span
from stages.report.graph import COLUMN, HEIGHT, WIDTH, Shown, bars, declared, graph

RUNS = [
    ("sft.enabled=true",), ("sft.enabled=false",), ("engine=mindrlhf", "model=qwen2_5_7b"),
    ("engine=verl", "model=qwen2_5_7b"), ("engine=mindspeed_rl", "model=qwen2_5_7b"),
]  # fmt: skip


def planned(overrides):
    """Stage -> stages whose artifacts it reads, of a real plan."""
    graph = [stage for stage in stages(load(overrides)) if stage.skipped is None]
    return {stage.name: list(dict.fromkeys(stage.inputs.values())) for stage in graph}


def reachable(edges, start):
    found = set()
    while more := {end for begin, end in edges if begin == start or begin in found} - found:
        found |= more
    return found


@pytest.mark.parametrize("overrides", RUNS)
def test_every_stage_is_reached_from_what_it_reads_and_no_nodes_overlap(overrides):
    reads = planned(overrides)
    drawn = graph(reads, {"grpo": Shown("built", "3 min", "log")})
    assert [node.stage for node in drawn.nodes] == [*reads]
    places = {(node.x + WIDTH, node.y + HEIGHT // 2): node.stage for node in drawn.nodes}
    ends = {(node.x, node.y + HEIGHT // 2): node.stage for node in drawn.nodes}
    edges = []
    for path in drawn.edges:
        start, end = path.split()[0][1:], path.split()[-1]
        edges.append((places[tuple(map(int, start.split(",")))], ends[tuple(map(int, end.split(",")))]))
    for stage, names in reads.items():
        for name in names:
            assert stage in reachable(edges, name), (name, stage)
    assert set(edges) <= {(name, stage) for stage, names in reads.items() for name in names}
    for a, b in itertools.combinations(drawn.nodes, 2):
        assert abs(a.x - b.x) >= WIDTH or abs(a.y - b.y) >= HEIGHT
    for begin, end in edges:
        assert next(n.x for n in drawn.nodes if n.stage == begin) + COLUMN <= next(
            n.x for n in drawn.nodes if n.stage == end
        )
    assert "grpo (built, 3 min) reads " in drawn.alt


def test_the_graph_of_an_unfinished_run_is_that_of_the_catalog():
    reads = planned(("sft.enabled=true",))
    direct = graph(declared([*reads]), {})
    assert direct.edges == graph(reads, {}).edges and len(direct.nodes) == len(reads)


def test_a_graph_with_a_circle_or_unknown_stages_is_drawn():
    drawn = graph({"a": ["b", "elsewhere"], "b": ["a"], "c": ["c"]}, {})
    assert [node.stage for node in drawn.nodes] == ["a", "b", "c"]


def test_bars_have_their_share_of_the_time_and_long_pauses_are_cut_out():
    made = [Span("fetch", 0, 5, True, None), Span("sft", 1000, 1030, False, None),
            Span("split", 1010, 1020, False, None), Span("grpo", 1030, 1090, False, None),
            Span("evaluate", 90_000, 90_010, False, None)]  # fmt: skip
    (fetch, sft, split, grpo, evaluate), (gap,) = bars(made)
    total = 100 + 2  # work, and the cut
    assert (fetch.left, fetch.width) == (0, pytest.approx(500 / total)), "reused: its length, at the left"
    assert (sft.left, sft.width) == (0, pytest.approx(3000 / total))
    assert (split.left, grpo.left) == (pytest.approx(1000 / total), pytest.approx(3000 / total))
    assert evaluate.left + evaluate.width == pytest.approx(100)
    assert gap.seconds == 90_000 - 1090 and gap.at == pytest.approx(9000 / total)
    assert bars([]) == ([], []) and bars(made[:1])[0][0].width == 100
