import mindspore as ms
import numpy as np
import pytest

from stages.grpo.operators import Cut


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_parts_are_neighbours_and_their_gradients_lie_side_by_side(axis):
    x = np.random.default_rng(0).standard_normal((6, 7, 5)).astype(np.float32)
    sizes = (1, x.shape[axis] - 3, 2)
    places = np.cumsum(sizes)[:-1]
    cut = Cut(axis)
    factors = (2.0, 0.0, 5.0)  # the middle part is not used

    @ms.jit
    def loss(x):
        first, _, last = cut(x, sizes)
        return (first * 2.0).sum() + (last * 5.0).sum()

    @ms.jit
    def parts(x):
        return cut(x, sizes)

    for part, expected in zip(parts(ms.Tensor(x)), np.split(x, places, axis), strict=True):
        np.testing.assert_array_equal(part.asnumpy(), expected)
    expected = [np.full_like(p, f) for p, f in zip(np.split(x, places, axis), factors, strict=True)]
    np.testing.assert_array_equal(ms.grad(loss)(ms.Tensor(x)).asnumpy(), np.concatenate(expected, axis))
