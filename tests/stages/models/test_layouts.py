"""Rules that the golden files don't show, worked out by hand from mindformers' shard calls."""

import pytest

from stages.base.errors import ConfigError
from stages.models.layouts import parameter_layouts, stages_of_layers, warnings
from tests.stages.weights.checkpoints import make_layout, make_model

EMBEDDING = "model.tok_embeddings.embedding_weight"


def _tensor(name, model=None, **layout):
    (stage,) = parameter_layouts(model or make_model(), make_layout(**layout))
    cut = stage[name]
    return [*cut.dev_matrix], [*cut.tensor_map], cut.opt_weight_shard_step, cut.opt_weight_shard_size


def test_vocabulary_that_does_not_divide_is_replicated():
    model = make_model(vocab_size=97)
    assert _tensor(EMBEDDING, model, data_parallel=2, model_parallel=4) == ([2, 4], [-1, -1], 0, 0)
    assert _tensor("lm_head.weight", model, data_parallel=2, model_parallel=4) == ([2, 4], [-1, -1], 0, 0)


def test_embedding_divides_by_mp_times_cp_and_head_by_mp():
    model = make_model(vocab_size=98)  # divisible by 2, not by 4
    layout = {"data_parallel": 1, "model_parallel": 2, "context_parallel": 2}
    assert _tensor(EMBEDDING, model, **layout)[:2] == ([2, 2], [-1, -1])
    assert _tensor("lm_head.weight", model, **layout)[:2] == ([2, 2], [0, -1])


def test_qkv_concat_with_context_parallel_and_sequence_parallel_sets_w2_again():
    model = make_model(qkv_concat=True)
    layout = {"data_parallel": 2, "model_parallel": 2, "context_parallel": 2}
    w2, gate = "model.layers.0.feed_forward.w2.weight", "model.layers.0.feed_forward.w_gate_hidden.weight"
    assert _tensor(w2, model, **layout)[:2] == ([2, 2, 2], [-1, 1])
    assert _tensor(w2, model, use_seq_parallel=True, **layout)[:2] == ([4, 2], [-1, 0])
    assert _tensor(gate, model, use_seq_parallel=True, **layout)[:2] == ([2, 2, 2], [1, -1])


@pytest.mark.parametrize(
    ("size", "expected"), [(-1, (2, -1)), (2, (2, 2)), (4, (2, 4)), (8, (2, 4)), (3, (0, 0)), (1, (2, -1))]
)
def test_parallel_optimizer_sizes(size, expected):
    layout = {"data_parallel": 4, "model_parallel": 2, "enable_parallel_optimizer": True}
    layout |= {"optimizer_weight_shard_size": size, "parallel_optimizer_threshold_kb": 0}
    assert _tensor("model.layers.0.attention.wq.weight", **layout)[2:] == expected


def test_parallel_optimizer_does_not_split_small_and_indivisible_tensors():
    layout = {"data_parallel": 4, "model_parallel": 1, "enable_parallel_optimizer": True}
    name = "model.layers.0.attention.wq.weight"  # 32 × 32
    threshold = "parallel_optimizer_threshold_kb"
    assert _tensor(name, make_model(param_init_type="bfloat16"), **{threshold: 2}, **layout)[2:] == (1, -1)
    assert _tensor(name, make_model(param_init_type="bfloat16"), **{threshold: 3}, **layout)[2:] == (0, 0)
    assert _tensor(name, make_model(param_init_type="float32"), **{threshold: 4}, **layout)[2:] == (1, -1)
    odd = make_model(intermediate_size=54)  # 54 rows are not divisible by 4
    assert _tensor("model.layers.0.feed_forward.w1.weight", odd, **{threshold: 0}, **layout)[2:] == (0, 0)


def test_a_replicated_head_is_shared_by_all_cards_even_without_data_parallel():
    layout = {"model_parallel": 4, "vocab_emb_dp": True, "enable_parallel_optimizer": True}
    layout |= {"parallel_optimizer_threshold_kb": 0}
    assert _tensor("lm_head.weight", **layout) == ([4], [-1, -1], 1, -1)
    assert _tensor("model.layers.0.attention.wq.weight", **layout) == ([4], [0, -1], 0, 0)


def test_layers_of_the_stages():
    layout = make_layout(pipeline_stage=3, offset=(1, 0, -1))
    assert stages_of_layers(make_model(num_hidden_layers=6), layout) == [0, 0, 0, 1, 1, 2]
    layout = make_layout(pipeline_stage=3, offset=(0, 0, 1))
    assert stages_of_layers(make_model(num_hidden_layers=7), layout) == [0, 0, 1, 1, 2, 2, 2]


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
