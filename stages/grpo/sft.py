"""The sft stage: supervised training on whole answers, in one process, until GRPO has something to reward.

GRPO needs a model that is sometimes right and sometimes wrong. Training stops when the greedy accuracy on
held-out training prompts reaches sft.stop_accuracy on average over the last sft.stop_checks checks: a single
check varies by 0.2 from step to step.

Shapes: R examples, B of them in a batch, S prompt slots, T answer slots.
"""

from __future__ import annotations

import itertools
import math
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stages.base.context import Context
from stages.base.errors import ConfigError, InputError
from stages.base.layout import ROLES
from stages.grpo.batch import Batch
from stages.grpo.checkpoint import Checkpoints, learner_sets, load_checkpoint
from stages.grpo.collectives import Gather, Groups
from stages.grpo.config import SftConfig, greedy
from stages.grpo.data import Examples, Vocabulary, read_examples, read_prompts, true_lengths
from stages.grpo.generator import GreedyAccuracy
from stages.grpo.learner import Learner
from stages.grpo.loss import SupervisedLoss, token_weights
from stages.grpo.metrics import StepLog
from stages.grpo.model import CausalLM
from stages.grpo.parallel import SINGLE
from stages.grpo.parameters import fuse, unfuse
from stages.grpo.rules import example_problems, sft_problems
from stages.grpo.stopping import StopRequest
from stages.models.config import ModelConfig
from stages.weights.tensors import merge_ranks, write_ranks


def run(context: Context) -> None:
    """Merge split's shards, train, and write shards for all three roles.

    Raises:
        ConfigError: the section sft breaks a rule, or there are fewer examples than a batch takes.
        InputError: weights or data are missing or do not fit.
    """
    shape, config = context.section(ModelConfig, "model"), context.section(SftConfig, "sft")
    strategy, records = context.inputs["strategy"], context.inputs["tokenize"]
    vocabulary = Vocabulary.read(context.inputs["fetch"], shape)
    prompts = read_prompts(records / "train.mindrecord", vocabulary)
    checked = prompts.take(range(max(0, len(prompts) - config.check_prompts), len(prompts)))
    examples = read_examples(records / "sft.mindrecord").without(checked)
    if problems := [*sft_problems(config), *example_problems(config, len(examples))]:
        raise ConfigError(problems)

    longest_example = examples.prompt.shape[1] + examples.completion.shape[1]
    model = CausalLM(shape, max(prompts.ids.shape[1] + config.max_tokens, longest_example))
    model.load(fuse(shape, merge_ranks(context.inputs["split"] / "train", strategy / "train_strategy")))
    accuracy = GreedyAccuracy(model, SINGLE, checked, greedy(config.max_tokens), vocabulary, Gather(None))
    result = train(context, config, model, examples, accuracy)
    trained = unfuse(shape, model.weights())
    for role in ROLES:
        write_ranks(trained, strategy / f"{role}_strategy", context.output / role, shape.param_init_type)
    context.write_result(result)


def train(
    context: Context, config: SftConfig, model: CausalLM, examples: Examples, accuracy: Callable[[], float]
) -> dict[str, Any]:
    """Train until the accuracy suffices or the steps are used up; return the values of result.json.

    Raises:
        Stopped: a signal asked for it, and a checkpoint was written; not without checkpoints.
    """
    with StopRequest() as stop:
        return _train(context, config, model, examples, accuracy, stop)


def _train(
    context: Context, config: SftConfig, model: CausalLM, examples: Examples, accuracy: Callable[[], float],
    stop: StopRequest,
) -> dict[str, Any]:  # fmt: skip
    shape, is_split = context.section(ModelConfig, "model"), [False] * len(model.names)
    learner = Learner(model, SupervisedLoss(), config, SINGLE, Groups(1), is_split, temperature=1.0)
    checkpoints = Checkpoints(context.work / "checkpoints", 0, 1, keep=1, strategies=None, warn=context.warn)
    done = checkpoints.newest() or 0
    recent = deque[float](maxlen=config.stop_checks)
    if done:
        recent.extend(load_checkpoint(shape, learner, checkpoints.path(done), None, 0)["recent"])
    log = StepLog(context.work / "metrics.jsonl", done)
    order = itertools.islice(batches(len(examples), config.batch_size, context.seed), done, None)
    step = done
    while step < config.steps and not reached(recent, config):
        step += 1
        began, rows = time.monotonic(), next(order)
        batch = take(examples, rows)
        update = learner.update(batch, batch.micro_batches(SINGLE, config.micro_batch_num))
        loss = float(update.sums_PK.sum(dtype=np.float64))
        norm, rate = update.grad_norm, update.learning_rate
        if not (math.isfinite(loss) and math.isfinite(norm)):
            good = max(checkpoints.steps(), default="none")
            rule = f"step {step}: the loss is {loss} and the gradient's norm {norm}; "
            rule += f"last good checkpoint: {good}"
            raise InputError("sft.learning_rate", config.learning_rate, rule, "lower it")
        speed = float(examples.mask[rows].sum()) / (time.monotonic() - began)
        row = {"step": step, "time_s": time.time(), "loss": loss, "lr": rate, "grad_norm": norm}
        row["tokens_per_s"] = speed
        if step % config.check_every == 0 or step == config.steps:
            row["accuracy_check"] = accuracy()
            recent.append(row["accuracy_check"])
            message = f"loss {row['loss']:.3f}, accuracy {recent[-1]:.3f}"
            context.progress(step, config.steps, message, "steps")
        log.append([row])
        if config.checkpoint_every:
            stop.listen()
        stops = stop.is_noted and step < config.steps and not reached(recent, config)
        if stops or (config.checkpoint_every and step % config.checkpoint_every == 0):
            state = {"updates": learner.updates, "recent": list(recent)}
            checkpoints.save(step, learner_sets(shape, learner), state, best=None)
        if stops:
            raise stop.stopped(step)
    shutil.copyfile(log.path, context.output / log.path.name)
    stopped = "accuracy" if reached(recent, config) else "steps"
    mean = float(np.mean(recent))
    return {"steps": step, "accuracy_check": mean, "stopped": stopped, "resumed_from": done or None}


def take(examples: Examples, rows: NDArray[Any]) -> Batch:
    """Return some examples, by their row numbers, as a batch whose answer tokens all have equal weight."""
    mask = examples.mask[rows]
    return Batch(
        examples.prompt[rows], examples.length[rows], examples.completion[rows][:, None],
        weight_BT=token_weights(mask, "dapo", mask.shape[1]), tokens_PG=true_lengths(mask, 0)[:, None],
    )  # fmt: skip


def reached(recent: deque[float], config: SftConfig) -> bool:
    """Return True if the last sft.stop_checks checks are right often enough on average."""
    enough = config.stop_accuracy
    return enough is not None and len(recent) == config.stop_checks and float(np.mean(recent)) >= enough


def batches(rows: int, size: int, seed: int) -> Iterator[NDArray[Any]]:
    """Yield the row numbers of batches; each epoch has its own order and leaves out an incomplete batch."""
    epoch = 0
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(rows)
        yield from (order[start : start + size] for start in range(0, rows - size + 1, size))
        epoch += 1
