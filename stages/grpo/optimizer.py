"""AdamW on one flat vector, its learning rate, and gradient clipping that knows split weights.

All of a card's parameters are updated as one vector: a handful of operators instead of a handful per
parameter, one AllReduce over the data-parallel workers, and one array per moment in a checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

from stages.grpo.collectives import AllReduce, Groups
from stages.grpo.config import OptimizerConfig
from stages.grpo.parallel import Place
from stages.grpo.reduction import ordered_sum


def learning_rate(config: OptimizerConfig, step: int) -> float:
    """Learning rate of update `step`, counted from 0.

    Linear from peak/warmup_steps to the peak over warmup_steps updates, then as config.schedule says
    down to final_share of the peak at the last update.
    """
    if step < config.warmup_steps:
        return config.learning_rate * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    done = (step - config.warmup_steps) / max(1, config.steps - 1 - config.warmup_steps)
    fall = done if config.schedule == "linear" else (1 - math.cos(math.pi * done)) / 2
    return config.learning_rate * (1 - (1 - config.final_share) * fall)


class AdamW(nn.Cell):
    """Adam with decoupled weight decay, as torch.optim.AdamW. Source: arXiv:1711.05101, algorithm 2."""

    def __init__(
        self, parameters: Sequence[Parameter], split: Sequence[bool], config: OptimizerConfig, place: Place,
        groups: Groups,
    ) -> None:  # fmt: skip
        """Zero moments.

        Args:
            parameters: to update, in the order of the flat gradient.
            split: for each parameter, whether model-parallel cards hold different parts of it.
            config: rates and decay.
            place: this worker in the training layout.
            groups: communication groups.
        """
        super().__init__()
        self.config, self.parameters = config, tuple(parameters)
        self.shapes = tuple(parameter.shape for parameter in parameters)
        sizes = [parameter.size for parameter in parameters]
        self.ends = tuple(int(end) for end in np.cumsum(sizes))
        self.m = Parameter(Tensor(np.zeros(sum(sizes), np.float32)), name="adam_m", requires_grad=False)
        self.v = Parameter(Tensor(np.zeros(sum(sizes), np.float32)), name="adam_v", requires_grad=False)
        matrix = [len(shape) > 1 for shape in self.shapes]
        self.decay = Tensor(np.repeat(np.array(matrix, np.float32) * np.float32(config.weight_decay), sizes))
        # A weight that every card of the group holds must count once in the norm.
        share = [1.0 if part else 1.0 / place.model_parallel for part in split]
        self.share = Tensor(np.repeat(np.array(share, np.float32), sizes))
        model_group, data_group = groups.of(place.model_ranks), groups.of(place.data_ranks)
        self.sum_model = AllReduce(model_group) if model_group else None
        self.sum_data = AllReduce(data_group) if data_group else None

    @ms.jit
    def construct(self, gradient: Tensor, rate: Tensor, step: Tensor) -> Tensor:
        """Update the parameters; returns the gradient's global norm before clipping.

        Args:
            gradient: flat, of this worker's rows; summed over the data-parallel workers here.
            rate: learning rate, scalar.
            step: updates so far, this one included, scalar float32.
        """
        config = self.config
        if self.sum_data is not None:
            gradient = self.sum_data(gradient)
        square = ordered_sum(gradient * gradient * self.share)
        if self.sum_model is not None:
            square = self.sum_model(square)
        norm = ops.sqrt(square)
        if config.max_grad_norm is not None:
            gradient = gradient * ops.minimum(config.max_grad_norm / (norm + 1e-6), Tensor(1.0, ms.float32))
        m = config.adam_beta1 * self.m + (1 - config.adam_beta1) * gradient
        v = config.adam_beta2 * self.v + (1 - config.adam_beta2) * gradient * gradient
        m_hat = m / (1 - ops.pow(config.adam_beta1, step))
        v_hat = v / (1 - ops.pow(config.adam_beta2, step))
        change = m_hat / (ops.sqrt(v_hat) + config.adam_epsilon)
        ops.assign(self.m, m)
        ops.assign(self.v, v)
        start = 0
        for parameter, shape, end in zip(self.parameters, self.shapes, self.ends):  # noqa: B905 (the graph parser knows no strict=)
            decayed = parameter * (1 - rate * self.decay[start])
            ops.assign(parameter, decayed - rate * change[start:end].reshape(shape))
            start = end
        return norm
