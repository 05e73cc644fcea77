"""Casts equal torch's and numpy's: nearest representable value, ties to even, NaN stays NaN."""

import numpy as np
import pytest

from stages.weights.dtypes import bf16_from_f32, cast, decode, f32_from_bf16

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


def test_float16_overflow_becomes_infinity():
    raw = cast(SPECIAL.view(np.uint32), "F32", "F16")
    expected = np.array([0, -0.0, np.inf, -np.inf, 1, 65504, np.inf, np.inf, 0, np.nan], np.float16)
    np.testing.assert_array_equal(raw.view(np.float16), expected)


def test_further_types_are_not_cast():
    counters = np.array([1, 2**40], np.uint64)
    assert cast(counters, "I64", "BF16") is counters
    assert decode(counters, "I64").dtype == np.int64 and decode(counters, "I64")[1] == 2**40
    assert decode(np.array([2**16 - 1], np.uint16), "I16")[0] == -1
