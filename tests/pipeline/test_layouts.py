"""`layouts` against a search written for the test: loops over degrees and divisibility, no shared code."""

import itertools
from dataclasses import replace

import pytest

from pipeline.cli import main
from pipeline.errors import ConfigError
from pipeline.plan.layouts import find

SHAPES = {  # heads, key-value heads, layers, tied: config.json of Qwen2.5
    "qwen2_5_0_5b": (14, 2, 24, True),
    "qwen2_5_7b": (28, 4, 28, False),
    "qwen2_5_72b": (64, 8, 80, False),
}
PROMPTS, GENERATIONS, LENGTH = 32, 8, 2048
SAMPLES = ["train.prompts_per_step=32", "rollout.num_generations=8", "engine.seq_length=2048"]


def by_hand(model, cards):
    """Layouts that mindformers' heads, MindSpore and mindrlhf's batches allow, with default settings."""
    heads, kv, layers, tied = SHAPES[model]
    result = set()
    for dp, mp, pp, cp in itertools.product(range(1, cards + 1), repeat=4):
        if dp * mp * pp * cp != cards or heads % mp or kv % mp or pp > layers:
            continue
        if LENGTH % cp or (tied and cp > 1):
            continue
        # generation and reference: the same mp, the other cards are replicas; two packs a reference batch
        replicas, rows = cards // mp, PROMPTS * GENERATIONS
        if PROMPTS % replicas or rows % (2 * replicas) or rows % dp:
            continue
        if rows % (dp * (pp if pp > 1 else 1)):
            continue
        result.add(f"dp{dp}_mp{mp}_pp{pp}" + (f"_cp{cp}" if cp > 1 else ""))
    return result


@pytest.mark.parametrize("cards", [1, 6, 8, 16])
@pytest.mark.parametrize("model", SHAPES)
def test_the_valid_layouts_are_those_of_a_plain_search(model, cards, printed):
    expected = by_hand(model, cards)
    command = ["layouts", f"model={model}", f"cards={cards}", *SAMPLES]
    if not expected:
        assert main(command) == 2
        return
    shown = printed(*command)
    assert sorted(layout["layout"] for layout in shown["layouts"]) == sorted(expected)
    assert not expected & shown["refused"].keys()


def test_only_an_explicit_layout_is_checked():
    choices, refused = find(["model=qwen2_5_7b", "layout=dp1_mp4_pp2", *SAMPLES])
    assert [choice.config.layout.name for choice in choices] == ["dp1_mp4_pp2"] and refused == {}


def test_layouts_are_ranked_by_fit_then_time():
    choices, _ = find(["model=qwen2_5_7b", "cards=8", "engine.device_memory_gib=64", *SAMPLES])
    fits = [choice.fits for choice in choices]
    assert fits == sorted(fits, key=["yes", "maybe", "no"].index) and set(fits) == {"yes", "maybe", "no"}
    for verdict in set(fits):
        seconds = [choice.cost.seconds for choice in choices if choice.fits == verdict]
        assert seconds == sorted(seconds)
    for choice in choices:  # roles take turns on a card
        assert choice.needed[1] == max(role.high for role in choice.memory)
        assert (choice.headroom >= 0) == (choice.fits == "yes")
        assert replace(choice, available=choice.needed[0]).fits != "no"
    # 7.6e9 weights x 16 bytes of weights, gradients and moments in float32 need more than one card of 64 GiB
    assert dict((c.config.layout.name, c.fits) for c in choices)["dp8_mp1_pp1"] == "no"


def test_without_a_valid_layout_the_problems_are_those_of_the_nearest():
    large = ["model=qwen2_5_72b", "cards=1024"]
    with pytest.raises(ConfigError, match=r"train.prompts_per_step=32: .* = 128 .*; use 128$"):
        find(large)
    choices, _ = find([*large, "train.prompts_per_step=128"])
    assert {choice.config.layout.train.model_parallel for choice in choices} == {8}
    with pytest.raises(ConfigError, match="engine=verl: has no cost estimate"):
        find(["engine=verl"])
