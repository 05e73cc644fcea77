"""Symbolic comparison of answers with Hugging Face's math-verify (optional, slow to import)."""

import functools
import importlib
import logging
import re
from typing import Any

from stages.rewards.functions import UnscorableError
from stages.rewards.number import true_number

LIBRARY: Any = importlib.import_module("math_verify")  # has no types
logging.getLogger("math_verify").setLevel(logging.ERROR)  # it would warn that its time limit is off
TAG = re.compile(r"(?i)</?(?:think|answer)>")
ANSWER, ANSWER_END = re.compile(r"(?i)<answer>"), re.compile(r"(?i)</answer>")
UNITS = re.compile(r"\\!|\\?%|\\\$|[€£¥₹]|\\(?:pounds|euro)(?![A-Za-z])")
SEPARATOR = re.compile(r"(?<=[0-9])\\[,;:] ?(?=[0-9]{3}(?![0-9]))")
DELIMITERS = ("$", "\\boxed", "\\(", "\\[")
"""Without them, math-verify reads only plain numbers and fractions."""
WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")


def maths(completion: str, solution: str) -> float:
    r"""Return 1.0 if the completion's answer equals the solution as mathematics (1/2, 0.5, \frac{1}{2}).

    Only the last <answer> counts if there is one, and a thought only if nothing follows it. A boxed answer
    takes precedence over other formulas, and formulas over plain numbers. Percent and currency signs are
    units that do not count, as for `number`. The caller sets the time limit, because math-verify's uses the
    same alarm.

    Raises:
        UnscorableError: the solution can't be read as mathematics.
    """
    gold = _parse_gold(solution)
    if not gold:
        raise UnscorableError(f"the solution {solution!r} is no formula")
    answer, is_formula = _answer(completion)
    return float(LIBRARY.verify(list(gold), _parse(answer, is_formula), timeout_seconds=None))


def _answer(completion: str) -> tuple[str, bool]:
    """Return a completion's answer without tags, and True if it is a formula alone.

    math-verify can't read tags. A formula alone is the content of <answer>, unless it has words.
    """
    after = completion.rpartition("</think>")[2]
    *before, answer = ANSWER.split(after if after.strip() else completion)
    answer = TAG.sub(" ", ANSWER_END.split(answer, maxsplit=1)[0])
    return answer, bool(before) and not WORD.search(answer)


@functools.lru_cache(maxsize=4096)
def _parse_gold(solution: str) -> tuple[Any, ...]:
    """Parse a solution once for the group of completions that is compared with it."""
    value = true_number(solution)
    if value is not None:  # units, which math-verify would read as variables, are gone
        solution = rf"$\frac{{{value.numerator}}}{{{value.denominator}}}$"
    return tuple(_parse(solution, is_formula=True))


def _parse(text: str, is_formula: bool) -> Any:
    """Return the formulas or numbers of a text; one that is a formula alone may lack the delimiters."""
    text = SEPARATOR.sub(",", UNITS.sub("", text))
    if is_formula and not any(delimiter in text for delimiter in DELIMITERS):
        text = f"${text}$"
    return LIBRARY.parse(text, parsing_timeout=None)
