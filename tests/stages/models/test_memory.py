"""Exact terms against MindSpore's own layouts; estimates by hand."""

import json
import math
from dataclasses import replace

import pytest

from stages.models.families import parameter_shapes
from stages.models.memory import GIB, RoleMemory, Term, activations, elements, logits, shown, weights
from tests.stages.weights.checkpoints import make_layout, make_model
from tests.stages.weights.strategy import golden


@pytest.mark.parametrize("file", golden.cases(), ids=lambda file: file.stem)
def test_elements_follow_mindspores_layouts(file):
    model, layout, stages = golden.load(file)
    assert [counted.held for counted in elements(model, layout)] == golden.held(model, stages)


def test_layers_beyond_equal_shares_count_where_they_lie():
    model, layout = make_model(num_hidden_layers=5), make_layout(pipeline_stage=2, offset=(0, 1))
    first, last = elements(model, layout)
    layer = sum(math.prod(size) for name, size in parameter_shapes(model).items() if ".layers.0." in name)
    table = model.vocab_size * model.hidden_size
    assert (first.held, last.held) == (2 * layer + table, 3 * layer + table + model.hidden_size)
    assert first.held + last.held == model.num_parameters
    assert weights(first.held, "bfloat16").low == 2 * first.held


def test_activations_by_hand():
    """hidden 32, 8 heads of 4, 4 key-value heads, intermediate 48, 10 tokens."""
    model, layout = make_model(), make_layout(model_parallel=2)
    layer = 4 * 32 + (2 * 32 + 2 * 16 + 4 * 48) // 2
    retained = activations(model, layout, tokens=10, layers=3, in_flight=2)
    assert (retained.low, retained.high) == (2 * 10 * 6 * layer, 4 * 10 * 6 * layer)
    again = activations(model, replace(layout, recompute=True), tokens=10, layers=3, in_flight=2)
    assert again.low == 2 * 10 * (6 * 32 + layer)
    assert not retained.exact and "estimate" in retained.formula
    sequence = activations(model, replace(layout, use_seq_parallel=True), tokens=10, layers=1, in_flight=1)
    assert sequence.low == 2 * 10 * (4 * 32 + 2 * 32 + 2 * 16 + 4 * 48) // 2


def test_logits_are_complete_if_the_vocabulary_is_not_split():
    model, layout = make_model(), make_layout(model_parallel=2)
    assert logits(model, layout, 10, 3).low == 10 * 96 * 4 // 2
    assert logits(model, replace(layout, vocab_emb_dp=True), 10, 3).high == 10 * 96 * 4 * 3


def test_fits_by_both_ends_and_without_what_lies_on_the_host():
    role = RoleMemory("train", 0, (Term("a", 10, 30, ""), Term("b", 99, 99, "", "host")))
    assert [role.fits(size) for size in (30, 29, 10, 9)] == ["yes", "maybe", "maybe", "no"]
    assert json.dumps(role.to_json())
    assert (shown(GIB, 2 * GIB), shown(2**20, 2**20)) == ("1.0 to 2.0 GiB", "1.0 MiB")
