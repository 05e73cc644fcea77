import numpy as np
from mindspore import Tensor

from stages.grpo.algorithm.gspo import sequence_log_ratio


def test_is_the_log_of_the_geometric_mean_of_the_ratios():
    ratios = np.array([[2.0, 8.0, 1.0], [3.0, 1.0, 1.0], [1.0, 1.0, 1.0]], np.float32)
    mask = np.array([[1, 1, 0], [1, 0, 0], [0, 0, 0]], np.float32)
    actual = sequence_log_ratio(Tensor(np.log(ratios) * mask), Tensor(mask)).asnumpy()
    np.testing.assert_allclose(np.exp(actual), [[4.0], [3.0], [1.0]], rtol=1e-5)
