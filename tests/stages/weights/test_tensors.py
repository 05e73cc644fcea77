"""Casts, files of one rank, and outputs that appear complete or not at all.

Casts equal torch's and numpy's: nearest representable value, ties to even, NaN stays NaN.
"""

import os

import numpy as np
import pytest
import safetensors.numpy

from stages.base.errors import InputError
from stages.weights.dtypes import CastOverflowError, bf16_from_f32, cast, decode, f32_from_bf16
from stages.weights.outputs import complete_directory
from stages.weights.tensors import write_rank
from tests.stages.weights.checkpoints import assert_same

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, 65504.0, 65520.0, 3.4e38, 1e-40, np.nan], np.float32)
TRICKY = np.array([0x3F808000, 0x3F818000, 0x7F800001, 0xFF80FFFF], np.uint32).view(np.float32)
"""Two ties, and NaNs with low bits only."""


def assert_equal_bits(actual, expected, width):
    numbers = ~np.isnan(expected)
    np.testing.assert_array_equal(actual.view(width)[numbers], expected.view(width)[numbers])
    assert np.isnan(actual[~numbers]).all()


def test_bfloat16_equals_torch():
    torch = pytest.importorskip("torch")
    bits = np.random.default_rng(0).integers(0, 2**32, 1_000_000, dtype=np.uint32)
    values = np.concatenate([bits.view(np.float32), SPECIAL, TRICKY])
    expected = torch.from_numpy(values).to(torch.bfloat16).float().numpy()
    assert_equal_bits(f32_from_bf16(bf16_from_f32(values)), expected, np.uint32)


@pytest.mark.parametrize(
    ("source", "target", "value", "stays"),
    [
        ("F32", "F16", 65520.0, 65519.99609375), ("F32", "F16", -70000.0, -65504.0),
        ("F32", "F16", 3e38, 1.0),
        ("BF16", "F16", -65536.0, 65280.0), ("F32", "BF16", 3.3961776e38, 3.3961774e38),
        ("F32", "BF16", -3.4e38, -3.38e38),
    ],
)  # fmt: skip
def test_numbers_beyond_the_type_are_refused(source, target, value, stays):
    """The largest number that rounds to a finite one is cast, and so are infinity and NaN."""

    def raw(*values):
        bits = np.array(values, np.float32)
        return bf16_from_f32(bits) if source == "BF16" else bits.view(np.uint32)

    fine = decode(cast(raw(1.0, np.nan, stays, np.inf, -np.inf), source, target), target)
    assert np.isnan(fine[1]) and np.isinf(fine[3:]).all() and np.isfinite(fine[[0, 2]]).all()
    with pytest.raises(CastOverflowError) as caught:
        cast(raw(1.0, np.nan, np.inf, stays, value), source, target)
    assert (np.float32(caught.value.value), caught.value.index) == (np.float32(value), 4)


def test_a_rank_with_a_number_beyond_the_type_is_refused(tmp_path):
    tensors = {"fine": np.ones((2, 3), np.float32), "wide": np.full((2, 2), 1e5, np.float32)}
    with pytest.raises(InputError, match=r"x\.safetensors: wide=100000: is too large for float16"):
        write_rank(tensors, tmp_path / "x.safetensors", "float16")


def test_further_types_are_not_cast():
    counters = np.array([1, 2**40], np.uint64)
    assert cast(counters, "I64", "BF16") is counters
    assert decode(counters, "I64").dtype == np.int64 and decode(counters, "I64")[1] == 2**40
    assert decode(np.array([2**16 - 1], np.uint16), "I16")[0] == -1


def test_strides_and_byte_order(tmp_path):
    """safetensors 0.8's save_file ignores strides; this one must not."""
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    write_rank({"t": array.T, "s": array[:, 1:3], "b": array.astype(">f4")}, tmp_path / "x.safetensors", None)
    written = safetensors.numpy.load_file(tmp_path / "x.safetensors")
    assert_same(written, {"t": array.T, "s": array[:, 1:3], "b": array})


def test_system_calls_that_write_less_than_requested(tmp_path, monkeypatch):
    array, pwrite = np.arange(100, dtype=np.float32), os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, offset: pwrite(file, data[:7], offset))
    write_rank({"t": array}, tmp_path / "x.safetensors", None)
    assert_same(safetensors.numpy.load_file(tmp_path / "x.safetensors"), {"t": array})


def test_a_directory_appears_complete_or_not_at_all(tmp_path):
    (tmp_path / "deep" / ".out.part" / "rank_7").mkdir(parents=True)  # left by a killed process
    with complete_directory(tmp_path / "deep" / "out") as directory:
        (directory / "file").write_text("x")
        assert not (tmp_path / "deep" / "out").exists()
    assert [path.name for path in (tmp_path / "deep").rglob("*")] == ["out", "file"]
    assert (tmp_path / "deep" / "out").stat().st_mode & 0o777 == 0o755
    with pytest.raises(KeyboardInterrupt), complete_directory(tmp_path / "failed") as directory:
        (directory / "file").write_text("x")
        raise KeyboardInterrupt
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_existing_targets_and_those_of_another_writer_are_not_overwritten(tmp_path):
    target = tmp_path / "out"
    with complete_directory(tmp_path / "first") as directory:
        with pytest.raises(InputError, match="is being written"), complete_directory(tmp_path / "first"):
            pytest.fail("both write")
        (directory / "file").touch()
    with pytest.raises(InputError, match="exists already"), complete_directory(target) as directory:
        (directory / "file").write_text("ours")
        target.mkdir()
        (target / "file").write_text("theirs")
    for existing in (target, target / "file"):
        with pytest.raises(InputError, match="exists already"), complete_directory(existing):
            pytest.fail("it exists")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "out"]
    assert (target / "file").read_text() == "theirs"
