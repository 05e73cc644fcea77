"""State of a trainer in checkpoints: collection and restoration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mindspore import Tensor
from numpy.typing import NDArray

from stages.base.errors import ConfigError, InputError
from stages.grpo.checkpoint import Checkpoints, read_set
from stages.grpo.checkpoint_files import flaw, read_state
from stages.grpo.learner import Learner
from stages.grpo.parameters import fuse, unfuse
from stages.grpo.rules import check_resumed
from stages.grpo.trainer import Trainer
from stages.models.config import ModelConfig
from stages.weights.strategy.files import Strategy

Arrays = Mapping[str, NDArray[Any]]


def learner_sets(shape: ModelConfig, learner: Learner) -> dict[str, Arrays]:
    """Return weights and both moments on this worker, by the names of checkpoints."""
    model, optimizer = learner.model, learner.optimizer
    sets = {"weights": model.trainable_params(), "adam_m": optimizer.m, "adam_v": optimizer.v}
    return {
        name: unfuse(
            shape, {key: parameter.asnumpy() for key, parameter in zip(model.names, parameters, strict=True)}
        )
        for name, parameters in sets.items()
    }


def load_checkpoint(
    shape: ModelConfig, learner: Learner, path: Path, strategy: Strategy | None, rank: int
) -> dict[str, Any]:
    """Load weights, moments and the counts of updates from a checkpoint of any layout; return its state.

    Raises:
        InputError: the checkpoint is damaged.
    """
    state = read_state(path)
    learner.model.load(fuse(shape, read_set(path, "weights", strategy, rank)))
    for name, parameters in (("adam_m", learner.optimizer.m), ("adam_v", learner.optimizer.v)):
        fused = fuse(shape, read_set(path, name, strategy, rank))
        for key, moment in zip(learner.model.names, parameters, strict=True):
            moment.set_data(Tensor(fused[key]))
    learner.updates = int(state["updates"])
    learner.schedule_position = int(state["step"]) * learner.config.updates_per_step
    return state


def save(trainer: Trainer, checkpoints: Checkpoints, step: int, best: Mapping[str, Any]) -> None:
    """Write a checkpoint; all workers call this. `best`: the fields of stages.grpo.stage.Best."""
    sets = learner_sets(trainer.job.model, trainer.learner)
    if trainer.reference is not None and trainer.job.train.ref_model_sync_steps:
        sets["reference"] = unfuse(trainer.job.model, trainer.reference.model.weights())
    state = {"updates": trainer.learner.updates, "position": trainer.position, "best": dict(best)}
    checkpoints.save(step, sets, state, best["step"])


def restore(trainer: Trainer, checkpoints: Checkpoints) -> tuple[int, dict[str, Any]]:
    """Restore the newest undamaged checkpoint, else train.resume_from.

    Returns:
        its step and state; 0 and nothing without one.

    Raises:
        ConfigError: train.resume_from is not grpo's, or leaves nothing to train.
        InputError: train.resume_from is damaged, or of another model.
    """
    step, elsewhere = checkpoints.newest(trainer.job.train.keep_best), trainer.job.train.resume_from
    if step is None:
        if elsewhere is None:
            return 0, {}
        path = Path(elsewhere)
        problem = flaw(path) if trainer.rank == 0 else None
        if not trainer.minimum(int(problem is None)):
            rule = f"is damaged: {problem or 'see the log of worker 0'}"
            raise InputError("train.resume_from", elsewhere, rule, "name another checkpoint")
        if problems := list(check_resumed(trainer.job.train, read_state(path))):
            raise ConfigError(problems)
    else:
        path = checkpoints.path(step)
    shape, policy, reference, rank = trainer.job.model, trainer.policy, trainer.reference, trainer.rank
    state = load_checkpoint(shape, trainer.learner, path, policy.strategy, rank)
    # The checkpoint of a run whose reference did not move has none.
    moved = trainer.job.train.ref_model_sync_steps > 0 and (path / "reference").exists()
    if reference is not None and moved:
        reference.model.load(fuse(shape, read_set(path, "reference", reference.strategy, rank)))
    trainer.position = int(state["position"])
    if step is None:
        state["best"] = {}  # of another run, on other prompts
    return int(state["step"]), state
