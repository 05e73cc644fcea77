"""Pipeline stages, refusals and warnings; layouts of tensors: weights/strategy/test_stage.py."""

import pytest

from stages.base.errors import ConfigError
from stages.models.layouts import parameter_layouts, stages_of_layers, warnings
from tests.stages.weights.checkpoints import make_layout, make_model


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
