"""What trainers use: load, write_ranks, merge_ranks."""

import numpy as np
import pytest
import safetensors.numpy

from stages.base.errors import InputError
from stages.models.families import parameter_shapes
from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy
from stages.weights.tensors import load, merge_ranks, slices_of, write_rank, write_ranks
from tests.stages.weights.checkpoints import make_layout, make_model, write_hf
from tests.stages.weights.plain_slicing import rank_part

LAYOUT = {"data_parallel": 2, "model_parallel": 2, "pipeline_stage": 2}


def _full(model):
    generator = np.random.default_rng(0)
    shapes = parameter_shapes(model)
    full = {name: generator.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    return full | {"global_step": np.array(3, np.int64)}


@pytest.mark.parametrize("tied", [True, False])
def test_ranks_and_back(tmp_path, tied):
    model = make_model(tie_word_embeddings=tied)
    write_strategy(model, make_layout(**LAYOUT), tmp_path / "strategy")
    full = _full(model)
    write_ranks(full, tmp_path / "strategy", tmp_path / "ranks", None)

    merged = merge_ranks(tmp_path / "ranks", tmp_path / "strategy" / "merged_ckpt_strategy.ckpt")
    assert merged.keys() == full.keys()
    for name, array in full.items():
        np.testing.assert_array_equal(merged[name], array)
        assert merged[name].dtype == array.dtype and merged[name].shape == array.shape

    strategy = read_strategy(tmp_path / "strategy")
    for rank in range(8):
        file = tmp_path / "ranks" / f"rank_{rank}" / "model.safetensors"
        by_library = safetensors.numpy.load_file(file)
        assert load(file).keys() == by_library.keys()
        for name, array in by_library.items():
            expected = (
                full[name] if name == "global_step" else rank_part(full[name], strategy.tensors[name], rank)
            )
            np.testing.assert_array_equal(array, expected)
        held = {
            name for name in strategy.tensors if not name.startswith("adam_") and strategy.holds(name, rank)
        }
        assert by_library.keys() == held | {"global_step"}


def test_storage_dtype(tmp_path):
    model = make_model()
    write_strategy(model, make_layout(), tmp_path / "strategy")
    full = _full(model)
    write_ranks(full, tmp_path / "strategy", tmp_path / "ranks", "bfloat16")
    back = merge_ranks(tmp_path / "ranks", tmp_path / "strategy")
    assert back["global_step"] == 3
    np.testing.assert_allclose(back["lm_head.weight"], full["lm_head.weight"], rtol=2**-8)
    write_ranks(back, tmp_path / "strategy", tmp_path / "again", "bfloat16")
    names = "rank_0/model.safetensors"
    assert (tmp_path / "again" / names).read_bytes() == (tmp_path / "ranks" / names).read_bytes()


def test_a_transposed_view_is_written_rightly(tmp_path):
    """safetensors 0.8's save_file ignores strides; ours must not."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_rank({"t": array.T, "s": array[:, 1:3], "b": array.astype(">f4")}, tmp_path / "x.safetensors", None)
    found = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    np.testing.assert_array_equal(found["t"], array.T)
    np.testing.assert_array_equal(found["s"], array[:, 1:3])
    np.testing.assert_array_equal(found["b"], array)


def test_loads_a_hugging_face_directory(tmp_path):
    bits = write_hf(tmp_path, make_model(torch_dtype="float16"), shards=2)
    found = load(tmp_path)
    assert found.keys() == bits.keys()
    for name, array in found.items():
        np.testing.assert_array_equal(array, bits[name].view(np.float16).astype(np.float32))


def test_a_tensor_that_the_strategy_lacks(tmp_path):
    write_strategy(make_model(), make_layout(), tmp_path)
    with pytest.raises(InputError, match=r"value_head=\[2\]: the strategy does not list"):
        slices_of({"value_head": np.zeros(2, np.float32)}, read_strategy(tmp_path), 0)


def test_a_tensor_that_the_weights_lack(tmp_path):
    model = make_model()
    write_strategy(model, make_layout(), tmp_path / "strategy")
    full = _full(model)
    del full["lm_head.weight"]
    with pytest.raises(InputError, match=r"lm_head.weight: the strategy lists this tensor"):
        write_ranks(full, tmp_path / "strategy", tmp_path / "ranks", None)
    assert not (tmp_path / "ranks").exists()
