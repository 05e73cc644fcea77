"""Pipeline stages and refused layouts; memory against MindSpore's own layouts and by hand; cost by hand."""

from dataclasses import replace

import pytest

from stages.base.errors import ConfigError
from stages.models.cost import cost
from stages.models.layouts import parameter_layouts, stages_of_layers, warnings
from stages.models.memory import activations, elements, logits
from tests.stages.weights.checkpoints import make_layout, make_model
from tests.stages.weights.strategy import golden


@pytest.mark.parametrize("file", golden.cases(), ids=lambda file: file.stem)
def test_elements_follow_mindspores_layouts(file):
    model, layout, stages = golden.load(file)
    assert [counted.held for counted in elements(model, layout)] == golden.held(model, stages)


def test_activations_by_hand():
    """hidden 32, 8 heads of 4, 4 key-value heads, intermediate 48, 10 tokens."""
    model, layout = make_model(), make_layout(model_parallel=2)
    layer = 4 * 32 + (2 * 32 + 2 * 16 + 4 * 48) // 2
    retained = activations(model, layout, tokens=10, layers=3, in_flight=2)
    assert (retained.low, retained.high) == (2 * 10 * 6 * layer, 4 * 10 * 6 * layer)
    again = activations(model, replace(layout, recompute=True), tokens=10, layers=3, in_flight=2)
    assert again.low == 2 * 10 * (6 * 32 + layer)
    some = activations(model, replace(layout, recompute=(0, 2)), tokens=10, layers=3, in_flight=2, stage=1)
    assert some.low == 2 * 10 * (2 * 2 * 32 + layer + 2 * layer)
    first = replace(layout, recompute=(0, 9))
    assert activations(model, first, tokens=10, layers=3, in_flight=2) == retained
    assert activations(model, first, tokens=10, layers=3, in_flight=2, stage=1).low == again.low
    assert not retained.exact and "estimate" in retained.formula
    sequence = activations(model, replace(layout, use_seq_parallel=True), tokens=10, layers=1, in_flight=1)
    assert sequence.low == 2 * 10 * (4 * 32 + 2 * 32 + 2 * 16 + 4 * 48) // 2
    assert logits(model, layout, 10, 3).low == 10 * 96 * 4 // 2  # complete without a split vocabulary:
    assert logits(model, replace(layout, vocab_emb_dp=True), 10, 3).high == 10 * 96 * 4 * 3


MODEL = make_model()  # hidden 32, 4 layers, 8 heads of 4, 4 key-value heads, bfloat16


def test_volumes_by_hand():
    """Ring all-reduce sends 2 (n - 1) / n of what it sums."""
    spent = cost(MODEL, make_layout(), tokens=100, updates=2)
    assert set(spent.sent.values()) == {0} and spent.bubble == 0
    assert spent.seconds == pytest.approx(6 * MODEL.num_parameters * 100 / 125e12)
    tensor = cost(MODEL, make_layout(model_parallel=4), 100, 1).sent
    assert tensor["tensor"] == 4 * 4 * (2 * 3 / 4) * 100 * 32 * 2
    again = cost(MODEL, make_layout(model_parallel=4, recompute=True), 100, 1).sent
    assert again["tensor"] == 6 * 4 * (2 * 3 / 4) * 100 * 32 * 2
    half = cost(MODEL, make_layout(model_parallel=4, recompute=(2,)), 100, 1).sent  # two of four layers
    assert half["tensor"] == 5 * 4 * (2 * 3 / 4) * 100 * 32 * 2
    layout = make_layout(data_parallel=2)
    data = cost(MODEL, layout, 100, updates=3).sent
    assert data["data"] == 3 * 2 * (1 / 2) * elements(MODEL, layout)[0].held * 2
    context = cost(MODEL, make_layout(context_parallel=2), 100, 1).sent
    assert context["context"] == 4 * 3 * 1 * (50 * 2 * 4 * 4) * 2
    pipeline = cost(MODEL, make_layout(pipeline_stage=2, micro_batch_num=6), 100, 1)
    assert pipeline.sent["pipeline"] == 2 * 100 * 32 * 2
    assert pipeline.bubble == pytest.approx(1 / 7)


def test_a_group_across_nodes_sends_more_slowly():
    for cards, bandwidth in ((8, 150e9), (16, 25e9)):
        spent = cost(MODEL, make_layout(data_parallel=cards), 1000 * cards, 1)
        computing = 6 * MODEL.num_parameters * 1000 / 125e12
        assert spent.seconds == pytest.approx(computing + spent.sent["data"] / bandwidth)


@pytest.mark.parametrize(("layers", "offset"), [(7, ()), (6, (1, 0, 0)), (6, (1, -1)), (6, (2, 0, -2))])
def test_layers_that_do_not_fit_the_stages(layers, offset):
    with pytest.raises(ConfigError, match=r"layout.train.offset"):
        stages_of_layers(
            make_model(num_hidden_layers=layers), make_layout(pipeline_stage=3, offset=offset), "layout.train"
        )


def test_dimensions_that_do_not_divide():
    with pytest.raises(
        ConfigError, match=r"layout.model_parallel=3: must divide model.layers.0.attention.wq.weight"
    ):
        parameter_layouts(make_model(), make_layout(model_parallel=3))


def test_warnings():
    tied = make_model(tie_word_embeddings=True)
    assert warnings(make_model(), make_layout(model_parallel=4)) == []
    assert "num_key_value_heads=4" in warnings(make_model(), make_layout(model_parallel=8))[0]
    assert "front end aborted" in warnings(tied, make_layout(pipeline_stage=2, data_parallel=2))[0]
    assert "stage 0" in warnings(tied, make_layout(pipeline_stage=2))[0]
    assert "vocab_emb_dp" in warnings(tied, make_layout(context_parallel=2))[0]
    assert warnings(tied, make_layout(context_parallel=2, vocab_emb_dp=True)) == []
