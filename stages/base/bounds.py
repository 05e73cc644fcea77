"""Bounds that many fields of the configuration have."""

from typing import Annotated

from annotated_types import Ge, Gt, Le

Positive = Annotated[int, Ge(1)]
NonNegative = Annotated[int, Ge(0)]
PositiveFloat = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Le(1)]
NonNegativeFloat = Annotated[float, Ge(0)]
