import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.rewards.length import LengthConfig, cosine, soft_overlong

# DAPO's own: at most 16,384 tokens wanted, 4,096 more tolerated.
DAPO = LengthConfig(20480, 0.2, "accuracy", (1.0, 0.5), (-1.0, -0.5), -1.0)


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(0, 0.0), (16384, 0.0), (16385, -1 / 4096), (18432, -0.5), (20480, -1.0), (20481, -1.0), (99999, -1.0)],
)
def test_soft_overlong_is_dapos_equation(tokens, expected):
    assert soft_overlong(tokens, DAPO) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("tokens", "right", "expected"),
    [
        (0, True, 1.0),
        (10240, True, 0.75),
        (5120, True, 0.5 + 0.25 * (1 + math.sqrt(0.5))),
        (0, False, -1.0),
        (10240, False, -0.75),
        (20480, True, -1.0),
        (20480, False, -1.0),
    ],
)
def test_cosine_by_hand(tokens, right, expected):
    assert cosine(tokens, right, DAPO) == pytest.approx(expected)


@given(st.integers(0, 20478), st.booleans())
def test_more_tokens_cost_the_right_and_pay_the_wrong(tokens, right):
    step = cosine(tokens + 1, right, DAPO) - cosine(tokens, right, DAPO)
    assert step <= 0 if right else step >= 0
