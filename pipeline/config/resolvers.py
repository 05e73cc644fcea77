"""Functions that defaults in conf may call, for example `${min:5,${train.steps}}`.

Each returns its default if another argument is null or of a wrong type, which reading the typed configuration
reports.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any


def minimum(default: int, limit: Any) -> int:
    """Return `default`, or `limit` if it is smaller."""
    return min(default, limit) if _is_count(limit) else default


def maximum(default: int, limit: Any) -> int:
    """Return `default`, or `limit` if it is larger."""
    return max(default, limit) if _is_count(limit) else default


def divisor(default: int, number: Any) -> int:
    """Return the greatest common divisor of `default` and `number`."""
    return math.gcd(default, number) if _is_count(number) and number > 0 else default


def product(default: int, factor: Any) -> int:
    """Return `default` times a whole number."""
    return int(default * factor) if _is_count(factor) else default


def replicas(cards: Any, *degrees: Any) -> int:
    """Return data_parallel for a number of cards and the other degrees; 1 if the number does not fit them."""
    if not all(_is_count(number) and number > 0 for number in (cards, *degrees)):
        return 1
    replica = math.prod(degrees)
    return int(cards // replica) if cards % replica == 0 else 1


def held_out(default: int, batch_size: Any, rows: Any) -> int:
    """Return how many of `rows` to hold out: a quarter if `default` would leave less than a batch."""
    if not _is_count(batch_size) or not _is_count(rows) or default + batch_size <= rows:
        return default
    return int(min(default, rows // 4))


def if_equal(value: Any, expected: Any, then: Any, otherwise: Any) -> Any:
    """Return `then` if the first two arguments are equal, else `otherwise`."""
    return then if value == expected else otherwise


RESOLVERS: Mapping[str, Callable[..., Any]] = {
    "min": minimum,
    "max": maximum,
    "gcd": divisor,
    "product": product,
    "replicas": replicas,
    "held_out": held_out,
    "if_equal": if_equal,
}
"""Name in conf -> function."""


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
