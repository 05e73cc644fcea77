"""Gradients of a loss over given completions, and the update that follows from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import ParameterTuple, Tensor, nn
from numpy.typing import NDArray

from stages.grpo.collectives import Groups
from stages.grpo.config import OptimizerConfig
from stages.grpo.model import Qwen2
from stages.grpo.optimizer import AdamW, learning_rate
from stages.grpo.parallel import Place

Array = NDArray[Any]


class Objective(nn.Cell):
    """The model's log-probabilities of given completions, and a loss over them."""

    def __init__(self, model: Qwen2, loss: nn.Cell, temperature: float) -> None:
        """Take over what to evaluate.

        Args:
            model: gives log-probabilities and entropies.
            loss: (logprob, entropy, *arrays) to (loss, sums of each row).
            temperature: of the distribution that the log-probabilities belong to.
        """
        super().__init__()
        self.model, self.loss, self.temperature = model, loss, temperature

    def construct(
        self, prompt: Tensor, length: Tensor, completion: Tensor, *arrays: Tensor
    ) -> tuple[Tensor, Tensor]:
        """As Qwen2.construct, then the loss of its result with `arrays`."""
        logprob, entropy = self.model(prompt, length, completion, self.temperature)
        result: tuple[Tensor, Tensor] = self.loss(logprob, entropy, *arrays)
        return result


class Learner:
    """Trains one model on completions with one loss."""

    def __init__(
        self, model: Qwen2, loss: nn.Cell, config: OptimizerConfig, place: Place, groups: Groups,
        split: Sequence[bool], temperature: float,
    ) -> None:  # fmt: skip
        """Build the graphs (compiled at the first update).

        Args:
            model: this worker's part.
            loss: as in Objective.
            config: optimizer.
            place: this worker in the training layout.
            groups: communication groups.
            split: for each of the model's parameters, whether model-parallel cards hold different parts.
            temperature: as in Objective.
        """
        parameters = ParameterTuple(model.trainable_params())
        self.config, self.model = config, model
        self.optimizer = AdamW(parameters, split, config, place, groups)
        grad = ms.value_and_grad(Objective(model, loss, temperature), None, parameters, has_aux=True)

        @ms.jit
        def gradient(
            prompt: Tensor, length: Tensor, completion: Tensor, *arrays: Tensor
        ) -> tuple[Tensor, tuple[Tensor, ...]]:
            (_, sums), parts = grad(prompt, length, completion, *arrays)
            return sums, parts

        self.gradient = gradient
        self.updates = 0
        """Updates so far; Adam's bias correction and the learning rate follow it."""

    def update(self, micro_batches: Sequence[Sequence[Array]]) -> tuple[NDArray[np.float32], float, float]:
        """One optimizer step on the sum of the micro-batches' losses.

        Args:
            micro_batches: each (prompt [P, S], length [P], completion [P, G, T], *the loss's arrays), of
                this worker's rows only.

        Returns:
            the loss's sums of each of this worker's rows [rows, sums] in the order given, the gradient's
            norm over all workers' rows, and the learning rate.
        """
        first, gradients = self.gradient(*tensors(micro_batches[0]))
        sums = [first]
        for batch in micro_batches[1:]:
            more, parts = self.gradient(*tensors(batch))
            sums.append(more)
            gradients = tuple(one + part for one, part in zip(gradients, parts, strict=True))
        rate = learning_rate(self.config, self.updates)
        self.updates += 1
        norm = self.optimizer(Tensor(rate, ms.float32), Tensor(float(self.updates), ms.float32), *gradients)
        return np.concatenate([part.asnumpy() for part in sums]), float(norm.asnumpy()), rate


def tensors(arrays: Sequence[Array]) -> list[Tensor]:
    """Arrays as tensors: whole numbers as int32, others as float32."""
    return [
        Tensor(np.ascontiguousarray(array.astype(np.int32 if array.dtype.kind in "iu" else np.float32)))
        for array in arrays
    ]
