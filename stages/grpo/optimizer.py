"""AdamW, its learning rate, and gradient clipping that knows split weights.

One fused operator updates a parameter and both its moments in place. Written out in single operators the
update of 25 million parameters took 40 times as long, and 15 times their memory: MindSpore 2.7.0 keeps each
intermediate result of a graph until its end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import mindspore as ms
from mindspore import Parameter, Tensor, nn, ops

from stages.grpo.collectives import Groups
from stages.grpo.config import OptimizerConfig
from stages.grpo.operators import split_sizes, square_sum, zeros
from stages.grpo.parallel import Mesh

LARGE = 2**25  # elements of a gradient from which its update is deferred until the others are freed
PIECES = 16  # in which the norm of such a gradient is taken


def learning_rate(config: OptimizerConfig, update: int) -> float:
    """Return the learning rate of one optimizer update, counted from 0.

    The rate rises linearly from peak/warmup_steps to the peak over warmup_steps updates. It then falls to
    final_share of the peak at the last of config.updates updates (cosine, linear) and stays there.
    """
    if update < config.warmup_steps:
        return config.learning_rate * (update + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.learning_rate
    decay_updates = max(1, config.updates - 1 - config.warmup_steps)
    done = min(1.0, (update - config.warmup_steps) / decay_updates)
    fall = done if config.schedule == "linear" else (1 - math.cos(math.pi * done)) / 2
    return config.learning_rate * (1 - (1 - config.final_share) * fall)


class AdamW(nn.Cell):
    """Adam with decoupled weight decay, as torch.optim.AdamW. Source: arXiv:1711.05101, algorithm 2."""

    def __init__(
        self, parameters: Sequence[Parameter], split: Sequence[bool], config: OptimizerConfig, mesh: Mesh,
        groups: Groups,
    ) -> None:  # fmt: skip
        """Create zero moments; `split`: parameters of which model-parallel cards hold different parts."""
        super().__init__()
        self.config, self.parameters = config, tuple(parameters)
        self.count = len(self.parameters)
        self.shapes = tuple(tuple(parameter.shape) for parameter in parameters)
        self.sizes = tuple(int(parameter.size) for parameter in parameters)
        self.m, self.v = zeros("adam_m", self.shapes), zeros("adam_v", self.shapes)
        self.decays = tuple(config.weight_decay if len(shape) > 1 else 0.0 for shape in self.shapes)
        self.advance = ops.AdamWeightDecay()
        model_group, data_group = groups.get(mesh.model_ranks), groups.get(mesh.data_ranks)
        self.sum_model = model_group.all_reduce() if model_group else None
        self.sum_data = data_group.all_reduce() if data_group else None
        # A weight that every card of the group holds must count once in the norm.
        self.shares = tuple(1.0 if part else 1.0 / mesh.model_parallel for part in split)
        copied = config.max_grad_norm is not None and self.sum_data is None
        self.deferred = tuple(i for i in range(self.count) if copied and self.sizes[i] >= LARGE)
        self.immediate = tuple(i for i in range(self.count) if i not in self.deferred)

    def update(self, rate: Tensor, step: Tensor, gradients: list[Tensor]) -> Tensor:
        """Update all parameters; return the norm, and empty `gradients` to reuse its memory."""
        deferred = [gradients[i] for i in self.deferred]
        norm, factor = self(rate, step, *gradients)
        gradients.clear()
        if deferred:
            self.update_deferred(rate, step, factor, *deferred)
        return norm

    @ms.jit
    def construct(self, rate: Tensor, step: Tensor, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Update the parameters that are not deferred; return the gradient's global norm and clipping factor.

        Args:
            rate: learning rate, scalar.
            step: updates so far, this one included, scalar float32.
            gradients: of this worker's rows; summed over the data-parallel workers here. Not one tuple, of
                which a graph reads zeros at its first call if another graph gave it (mindspore 2.7.0, CPU).
        """
        config = self.config
        if self.sum_data is not None:
            summed = self.sum_data(ops.concat([gradient.reshape((-1,)) for gradient in gradients]))
            flat = split_sizes(summed, 0, self.sizes)
            gradients = tuple([flat[i].reshape(self.shapes[i]) for i in range(self.count)])
        square = Tensor(0.0, ms.float32)
        for i in range(self.count):
            square = square + self.shares[i] * square_sum(gradients[i], PIECES if i in self.deferred else 1)
        if self.sum_model is not None:
            square = self.sum_model(square.reshape((1,))).reshape(())
        norm = ops.sqrt(square)
        factor = Tensor(1.0, ms.float32)
        if config.max_grad_norm is not None:
            factor = ops.minimum(config.max_grad_norm / (norm + 1e-6), factor)
        rates = self.rates(rate, step)
        waiting = factor
        for i in self.immediate:
            # Not in a function shared with update_deferred: 290 calls take 0.3 GiB, one for all 0.03 GiB.
            gradient = gradients[i]
            if config.max_grad_norm is not None:
                gradient = gradient * waiting
            done = self.advance(
                self.parameters[i], self.m[i], self.v[i], rates[0], Tensor(config.adam_beta1, ms.float32),
                Tensor(config.adam_beta2, ms.float32), rates[1], self.decays[i] / rates[2], gradient,
            )  # fmt: skip
            waiting = ops.depend(factor, done)  # the next clipped gradient needs this one's memory
        return norm, factor

    @ms.jit
    def update_deferred(self, rate: Tensor, step: Tensor, factor: Tensor, *gradients: Tensor) -> Tensor:
        """Update the deferred parameters, by their gradients times `factor`."""
        config, rates = self.config, self.rates(rate, step)
        for k, i in enumerate(self.deferred):
            done = self.advance(
                self.parameters[i], self.m[i], self.v[i], rates[0], Tensor(config.adam_beta1, ms.float32),
                Tensor(config.adam_beta2, ms.float32), rates[1], self.decays[i] / rates[2],
                gradients[k] * factor,
            )  # fmt: skip
            factor = ops.depend(factor, done)
        return factor

    def rates(self, rate: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return rate and epsilon with the bias correction that the operator lacks, and the rate's factor.

        m / c1 / (sqrt(v / c2) + e) = s m / (sqrt(v) + sqrt(c2) e) with s = sqrt(c2) / c1, which goes into the
        rate, and out of the decay again.
        """
        root = ops.sqrt(1 - ops.pow(self.config.adam_beta2, step))
        scale = root / (1 - ops.pow(self.config.adam_beta1, step))
        return rate * scale, root * self.config.adam_epsilon, scale
