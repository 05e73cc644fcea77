"""Gradients of a loss over given completions, and the update by them.

Shapes as in batch.py, and K sums of a loss.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import mindspore as ms
import numpy as np
from mindspore import ParameterTuple, Tensor, nn, ops
from numpy.typing import NDArray

from stages.grpo.batch import MODEL_INPUTS, Batch, compiled
from stages.grpo.collectives import Groups
from stages.grpo.config import OptimizerConfig
from stages.grpo.model import CausalLM
from stages.grpo.operators import added
from stages.grpo.optimizer import AdamW, learning_rate
from stages.grpo.packing import MicroBatch
from stages.grpo.parallel import Mesh
from stages.grpo.worker import give_back_memory


class Objective(nn.Cell):
    """The model's log-probabilities of given completions, and a loss over them."""

    def __init__(self, model: CausalLM, loss: nn.Cell, temperature: float) -> None:
        super().__init__()
        self.model, self.loss, self.temperature = model, loss, temperature
        self.loss_inputs = tuple(inspect.signature(loss.construct).parameters)[2:]
        """Fields of Batch, in the order in which `construct` takes them."""

    def construct(self, *inputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss of Batch.tensors, its sums per completion, and the log-probabilities [B, T]."""
        logprob, entropy = self.model(*inputs[:MODEL_INPUTS], self.temperature)
        loss, sums = self.loss(logprob, entropy, *inputs[MODEL_INPUTS:])
        return loss, sums, ops.stop_gradient(logprob)


@dataclass(frozen=True)
class Update:
    """The numbers of one update."""

    sums_PK: NDArray[np.float32]
    """The loss's, over the completions of each prompt; 0 for other workers' prompts."""
    grad_norm: float
    """Gradient norm of all parameters over all workers' rows, before clipping."""
    learning_rate: float
    logprobs_PGT: NDArray[np.float32]
    """Log-probabilities of the completions before the update; 0 for other workers' prompts, undefined on
    padding."""


class Learner:
    """One model, its loss and its optimizer."""

    def __init__(
        self, model: CausalLM, loss: nn.Cell, config: OptimizerConfig, mesh: Mesh, groups: Groups,
        split: Sequence[bool], temperature: float,
    ) -> None:  # fmt: skip
        """Build the graphs, which are compiled at the first update; arguments as in Objective and AdamW."""
        parameters = ParameterTuple(model.trainable_params())
        self.config, self.model = config, model
        self.optimizer = AdamW(parameters, split, config, mesh, groups)
        self.objective = Objective(model, loss, temperature)
        grad = ms.value_and_grad(self.objective, None, parameters, has_aux=True)

        def gradient(*inputs: Tensor) -> tuple[Tensor, Tensor, tuple[Tensor, ...]]:
            (_, sums, logprob), gradients = grad(*inputs)
            return sums, logprob, gradients

        self.gradient = compiled(gradient)
        self.updates = 0
        """Updates so far, those of a run that this one resumes included; for Adam's bias correction."""
        self.schedule_position = 0
        """Updates so far as this run's learning-rate schedule counts them."""
        self._has_compiled = False

    def update(self, batch: Batch, micro_batches: Sequence[MicroBatch]) -> Update:
        """Take one optimizer step on the summed losses of this worker's micro-batches.

        Without a micro-batch the gradient is 0, which Adam's moments and weight decay do not ignore.
        """
        outputs, gradients = [], list[Tensor]()
        for micro in micro_batches:
            *output, more = self.gradient(*batch.take(micro).tensors(*self.objective.loss_inputs))
            outputs.append(output)
            gradients = list(added(*gradients, *more) if gradients else more)
            del more  # the optimizer needs the memory of what it is done with
        if not gradients:
            gradients = [ops.zeros_like(parameter) for parameter in self.optimizer.parameters]
        if outputs and not self._has_compiled:
            give_back_memory()  # what compiling took
            self._has_compiled = True
        rate = learning_rate(self.config, self.schedule_position)
        self.updates += 1
        self.schedule_position += 1
        step = Tensor(float(self.updates), ms.float32)
        norm = self.optimizer.update(Tensor(rate, ms.float32), step, gradients)
        P, G, T = batch.completion_PGT.shape
        sums_BK = np.zeros((P * G, len(self.objective.loss.sums)), np.float32)
        logprobs_BT = np.zeros((P * G, T), np.float32)
        for micro, (sums, logprobs) in zip(micro_batches, outputs, strict=True):
            sums_BK[micro.completions] = sums.asnumpy()[micro.results]
            logprobs_BT[micro.completions, : micro.slots] = logprobs.asnumpy()[micro.results]
        sums_PK = sums_BK.reshape(P, G, -1).sum(1)
        return Update(sums_PK, float(norm.asnumpy()), rate, logprobs_BT.reshape(P, G, T))
