"""Element types as safetensors names them, and exact casts between the floating ones.

Plain NumPy has no bfloat16: its elements are kept as the upper 16 bits of a float32 (uint16).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from stages.models.config import Dtype

Array = npt.NDArray[Any]

ITEM_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E5M2": 1, "F8_E4M3": 1,
    "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4,
    "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
"""Bytes per element. Source: safetensors 0.7.0, safetensors/src/tensor.rs (enum Dtype)."""

CODES: dict[Dtype, str] = {"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
"""Configuration dtype -> safetensors code."""

FLOATS = ("F32", "BF16", "F16")
"""Types that a cast may change; counters and other types keep theirs."""

NUMPY = {
    "BOOL": "?", "U8": "u1", "I8": "i1", "I16": "<i2", "U16": "<u2", "F16": "<f2", "I32": "<i4",
    "U32": "<u4", "F32": "<f4", "I64": "<i8", "U64": "<u8", "F64": "<f8",
}  # fmt: skip
"""safetensors code -> NumPy type."""


def storage_code(code: str, dtype: Dtype | None) -> str:
    """Return the code to store a tensor of type `code` in: `dtype` for floating ones if one is given."""
    return CODES[dtype] if dtype is not None and code in FLOATS else code


def raw_dtype(code: str) -> np.dtype[Any]:
    """Return an unsigned NumPy type of the same width, for moving bytes without interpreting them."""
    return np.dtype(f"<u{ITEM_BYTES[code]}")


def bf16_from_f32(values: Array) -> Array:
    """Round float32 to bfloat16, nearest even; NaN stays NaN. Returns uint16 of the same shape."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded >>= np.uint32(16)
    result = rounded.astype(np.uint16)
    nan = np.isnan(values)
    if nan.any():  # rounding could have turned it into infinity
        result[nan] = (bits[nan] >> np.uint32(16)).astype(np.uint16) | np.uint16(0x40)
    return np.asarray(result)


def f32_from_bf16(bits: Array) -> Array:
    """Widen bfloat16 (uint16) to float32, exactly."""
    return np.asarray((bits.astype(np.uint32) << np.uint32(16)).view(np.float32))


def cast(raw: Array, source: str, target: str) -> Array:
    """Cast raw elements (see `raw_dtype`) from one floating type to another; other types stay as they are."""
    if source == target or source not in FLOATS:
        return raw
    values = decode(raw, source)
    if target == "BF16":
        return bf16_from_f32(values)
    with np.errstate(over="ignore"):  # beyond 65504 becomes infinity, as in every framework
        return np.asarray(values.astype(NUMPY[target], copy=False).view(raw_dtype(target)))


def decode(raw: Array, code: str) -> Array:
    """Return raw elements as numbers: floats as float32, other types as themselves (F8: raw bytes)."""
    if code == "BF16":
        return f32_from_bf16(raw)
    values = np.ascontiguousarray(raw).view(NUMPY.get(code, "u1"))
    return np.asarray(values.astype(np.float32) if code == "F16" else values)
