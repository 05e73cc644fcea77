"""AdamW on flat blocks, its learning rate, and gradient clipping that knows split weights.

Neighbouring parameters are updated as one vector, up to BLOCK elements: a handful of operators for all of
a small model instead of a handful per parameter, and no copy of a whole large one while it is updated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.collectives import AllReduce, Groups
from stages.grpo.config import OptimizerConfig
from stages.grpo.parallel import Place
from stages.grpo.reduction import ordered_sum

BLOCK = 1 << 24  # elements; a layer of a 0.5B model has 14.9 M


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
        self.shapes = tuple(tuple(parameter.shape) for parameter in parameters)
        self.ends = (0, *(int(end) for end in np.cumsum([parameter.size for parameter in parameters])))
        self.decays = tuple(config.weight_decay if len(shape) > 1 else 0.0 for shape in self.shapes)
        self.blocks = blocks([parameter.size for parameter in parameters])
        self.bounds = tuple((self.ends[first], self.ends[last]) for first, last in self.blocks)
        sizes = [end - start for start, end in self.bounds]
        self.m, self.v = _moments("adam_m", sizes), _moments("adam_v", sizes)
        model_group, data_group = groups.of(place.model_ranks), groups.of(place.data_ranks)
        self.sum_model = AllReduce(model_group) if model_group else None
        self.sum_data = AllReduce(data_group) if data_group else None
        # A weight that every card of the group holds must count once in the norm.
        self.shares = None
        if model_group:
            share = [1.0 if part else 1.0 / place.model_parallel for part in split]
            counts = [parameter.size for parameter in parameters]
            self.shares = tuple(
                Tensor(np.repeat(np.array(share[a:b], np.float32), counts[a:b])) for a, b in self.blocks
            )

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
        norm = ops.sqrt(self.square(gradient))
        factor = Tensor(1.0, ms.float32)
        if config.max_grad_norm is not None:
            factor = ops.minimum(config.max_grad_norm / (norm + 1e-6), factor)
        correct_m, correct_v = 1 - ops.pow(config.adam_beta1, step), 1 - ops.pow(config.adam_beta2, step)
        # Graph mode unrolls this; zip's strict= is unknown to its parser.
        for i in range(len(self.blocks)):
            start, end = self.bounds[i]
            part = gradient[start:end]
            if config.max_grad_norm is not None:
                part = part * factor
            m = config.adam_beta1 * self.m[i] + (1 - config.adam_beta1) * part
            v = config.adam_beta2 * self.v[i] + (1 - config.adam_beta2) * part * part
            change = m / correct_m / (ops.sqrt(v / correct_v) + config.adam_epsilon)
            ops.assign(self.m[i], m)
            ops.assign(self.v[i], v)
            for j in range(self.blocks[i][0], self.blocks[i][1]):
                own = change[self.ends[j] - start : self.ends[j + 1] - start].reshape(self.shapes[j])
                decayed = self.parameters[j] * (1 - rate * self.decays[j])
                ops.assign(self.parameters[j], decayed - rate * own)
        return norm

    def square(self, gradient: Tensor) -> Tensor:
        """Squared norm of the whole gradient, over all model-parallel cards."""
        total = Tensor(0.0, ms.float32)
        for i in range(len(self.blocks)):
            start, end = self.bounds[i]
            part = gradient[start:end]
            squares = part * part
            if self.shares is not None:
                squares = squares * self.shares[i]
            total = total + ordered_sum(squares)
        return total if self.sum_model is None else self.sum_model(total)

    def moments(self) -> dict[str, list[NDArray[np.float32]]]:
        """Both moments, an array of each parameter's shape, in the parameters' order."""
        return {name: self._pieces(kept) for name, kept in (("adam_m", self.m), ("adam_v", self.v))}

    def put_back(self, name: str, arrays: Sequence[NDArray[np.float32]]) -> None:
        """Take over one moment as `moments` gives it."""
        for (first, last), kept in zip(self.blocks, {"adam_m": self.m, "adam_v": self.v}[name], strict=True):
            kept.set_data(Tensor(np.concatenate([array.reshape(-1) for array in arrays[first:last]])))

    def _pieces(self, kept: Sequence[Parameter]) -> list[NDArray[np.float32]]:
        pieces: list[NDArray[np.float32]] = []
        for (first, last), (start, _), block in zip(self.blocks, self.bounds, kept, strict=True):
            flat = block.asnumpy()
            pieces += [
                flat[self.ends[j] - start : self.ends[j + 1] - start].reshape(self.shapes[j])
                for j in range(first, last)
            ]
        return pieces


def blocks(sizes: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Runs (first, last + 1) of neighbouring parameters, each of at most BLOCK elements or a single one."""
    found, first, held = [], 0, 0
    for i, size in enumerate(sizes):
        if held and held + size > BLOCK:
            found.append((first, i))
            first, held = i, 0
        held += size
    return (*found, (first, len(sizes)))


def _moments(name: str, sizes: Sequence[int]) -> ParameterTuple:
    return ParameterTuple(
        [
            Parameter(Tensor(np.zeros(size, np.float32)), name=f"{name}_{i}", requires_grad=False)
            for i, size in enumerate(sizes)
        ]
    )
