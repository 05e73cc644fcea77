"""Element types as safetensors names them, and casts between the floating ones.

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


BEYOND = {"F16": 65520.0, "BF16": float.fromhex("0x1.ffp+127")}
"""Types narrower than float32 -> the smallest number that rounds to infinity."""


class CastOverflowError(Exception):
    """A finite number is too large for the type that it is cast to."""

    def __init__(self, value: float, index: int, target: str) -> None:
        """Describe the number at `index` of the flattened array."""
        self.value, self.index = value, index
        names = {code: dtype for dtype, code in CODES.items()}
        largest = {"F16": 65504.0, "BF16": float.fromhex("0x1.fep+127")}[target]
        self.rule = f"is too large for {names[target]}, whose largest number is {largest:g}"
        self.remedy = f"store the weights as {'bfloat16 or float32' if target == 'F16' else 'float32'}"
        super().__init__(f"{value:g} {self.rule}")


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
    """Cast raw elements (see `raw_dtype`) from one floating type to another; other types stay as they are.

    Infinity and NaN stay what they are.

    Raises:
        CastOverflowError: a finite number would become infinity.
    """
    if source == target or source not in FLOATS:
        return raw
    values = decode(raw, source)
    _check_range(values, target)
    if target == "BF16":
        return bf16_from_f32(values)
    return np.asarray(values.astype(NUMPY[target], copy=False).view(raw_dtype(target)))


def _check_range(values: Array, target: str) -> None:
    """Refuse finite numbers beyond the range of a type; costs two reductions while the data are cached."""
    beyond = BEYOND.get(target)
    if beyond is None or not values.size or (-beyond < values.min() and values.max() < beyond):
        return
    too_large = np.flatnonzero(np.isfinite(values) & (np.abs(values) >= np.float32(beyond)))
    if too_large.size:  # otherwise the extremes are infinity or NaN
        index = int(too_large[0])
        raise CastOverflowError(float(values.reshape(-1)[index]), index, target)


def decode(raw: Array, code: str) -> Array:
    """Return raw elements as numbers: floats as float32, other types as themselves (F8: raw bytes)."""
    if code == "BF16":
        return f32_from_bf16(raw)
    values = np.ascontiguousarray(raw).view(NUMPY.get(code, "u1"))
    return np.asarray(values.astype(np.float32) if code == "F16" else values)
