"""Symbolic comparison of answers with Hugging Face's math-verify (optional, slow to import)."""

import functools
import importlib
import logging
from typing import Any

from stages.rewards.functions import UnscorableError

LIBRARY: Any = importlib.import_module("math_verify")  # has no types
logging.getLogger("math_verify").setLevel(logging.ERROR)  # it would warn that its time limit is off


def maths(completion: str, solution: str) -> float:
    r"""Return 1.0 if the completion's answer equals the solution as mathematics (1/2, 0.5, \frac{1}{2}).

    A boxed answer takes precedence over other formulas, and formulas over plain numbers. The caller sets
    the time limit, because math-verify's uses the same alarm.

    Raises:
        UnscorableError: the solution can't be read as mathematics.
    """
    gold = _parse_gold(solution)
    if not gold:
        raise UnscorableError(f"the solution {solution!r} is no formula")
    expressions = LIBRARY.parse(completion, parsing_timeout=None)
    return float(LIBRARY.verify(list(gold), expressions, timeout_seconds=None))


@functools.lru_cache(maxsize=4096)
def _parse_gold(solution: str) -> tuple[Any, ...]:
    """Parse a solution once for the group of completions that is compared with it."""
    marked = any(delimiter in solution for delimiter in ("$", "\\boxed", "\\(", "\\["))
    text = solution if marked else f"${solution}$"
    return tuple(LIBRARY.parse(text, parsing_timeout=None))
