"""Casts against their definition: nearest representable value, ties to even, NaN stays NaN."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stages.weights.dtypes import bf16_from_f32, cast, decode, f32_from_bf16

SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, 1.0, 65504.0, 65520.0, 3.4e38, 1e-40, np.nan], np.float32)


def _nearest_bf16(value):
    """Find the nearest bfloat16 by comparing both neighbours in float64 (no bit operations)."""
    exponent = np.frexp(np.float64(value))[1]
    scale = 2.0 ** (int(exponent) - 8)  # 8 bits of precision
    quotient = np.float64(value) / scale
    low = np.floor(quotient)
    fraction = quotient - low
    rounded = low + (1 if fraction > 0.5 or (fraction == 0.5 and low % 2 == 1) else 0)
    return float(rounded * scale)


@given(sign=st.integers(0, 1), exponent=st.integers(1, 253), mantissa=st.integers(0, 2**23 - 1))
def test_bf16_is_the_nearest(sign, exponent, mantissa):
    array = np.array([sign << 31 | exponent << 23 | mantissa], np.uint32).view(np.float32)
    assert float(f32_from_bf16(bf16_from_f32(array))[0]) == _nearest_bf16(float(array[0]))


def test_ties_go_to_the_even_neighbour():
    ties = np.array([0x3F808000, 0x3F818000], np.uint32).view(np.float32)  # halfway between neighbours
    assert bf16_from_f32(ties).tolist() == [0x3F80, 0x3F82]


def test_bf16_round_trip_is_exact_for_all_values():
    bits = np.arange(2**16, dtype=np.uint16)
    back = bf16_from_f32(f32_from_bf16(bits))
    numbers = ~np.isnan(f32_from_bf16(bits))
    np.testing.assert_array_equal(back[numbers], bits[numbers])
    assert np.isnan(f32_from_bf16(back[~numbers])).all()


def test_special_values():
    back = f32_from_bf16(bf16_from_f32(SPECIAL))
    np.testing.assert_array_equal(np.isnan(back), np.isnan(SPECIAL))
    np.testing.assert_array_equal(np.signbit(back[:2]), [False, True])
    assert back[2] == np.inf and back[3] == -np.inf
    tricky = np.array([0x7F800001, 0xFF80FFFF], np.uint32).view(np.float32)  # NaNs with low bits only
    assert np.isnan(f32_from_bf16(bf16_from_f32(tricky))).all()


def test_f16_overflow_becomes_infinity():
    raw = cast(SPECIAL.view(np.uint32), "F32", "F16")
    expected = np.array([0, -0.0, np.inf, -np.inf, 1, 65504, np.inf, np.inf, 0, np.nan], np.float16)
    np.testing.assert_array_equal(raw.view(np.float16), expected)


def test_further_types_are_not_cast():
    counters = np.array([1, 2**40], np.uint64)
    assert cast(counters, "I64", "BF16") is counters
    assert decode(counters, "I64").dtype == np.int64 and decode(counters, "I64")[1] == 2**40
    assert decode(np.array([2**16 - 1], np.uint16), "I16")[0] == -1
