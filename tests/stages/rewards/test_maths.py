import pytest

pytest.importorskip("math_verify")

from stages.rewards.config import RewardConfig
from stages.rewards.score import score

CASES = [
    (r"\boxed{42}", "42", 1.0),
    (r"The answer is $\frac{1}{2}$.", "0.5", 1.0),
    (r"\boxed{0.5}", r"\frac{1}{2}", 1.0),
    (r"\boxed{2x+1}", "$1+2x$", 1.0),
    (r"\boxed{x}", "$y$", 0.0),
    (r"\boxed{43}", "42", 0.0),
    ("so 41 ... the answer is 42", "42", 1.0),
    ("", "42", 0.0),
    (r"\frac{1{2}", r"\frac{1}{2}", 0.0),
]


@pytest.mark.parametrize(("completion", "solution", "expected"), CASES)
def test_answers_are_compared_as_mathematics(completion, solution, expected):
    result = score(RewardConfig(("maths",), (1.0,), None), [completion], [solution])
    assert result.total.tolist() == [expected]
    assert result.failures == {"maths": 0}


def test_a_solution_that_is_no_formula_is_counted():
    result = score(RewardConfig(("maths",), (1.0,), None), ["1"], [""])
    assert (result.total.tolist(), result.failures) == ([0.0], {"maths": 1})
