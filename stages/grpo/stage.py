"""The grpo stage: one worker per card under msrun, or a single process on one card."""

from __future__ import annotations

import json
import shutil
import time
from typing import TYPE_CHECKING

from stages.context import Context
from stages.errors import ConfigError, Problem
from stages.grpo import worker
from stages.grpo.config import RolloutConfig, TrainConfig
from stages.layout import LayoutConfig
from stages.model_config import ModelConfig
from stages.rewards.config import RewardConfig

if TYPE_CHECKING:
    from stages.grpo.trainer import Job, StepResult


def run(context: Context) -> None:
    """Train and write this worker's shard; worker 0 writes logs and results too.

    Raises:
        ConfigError: the layout is beyond this trainer, or does not fit the number of workers.
        InputError: weights or data are missing or do not fit.
    """
    rank, world = worker.start()
    from stages.grpo.checkpoint import Checkpoints
    from stages.grpo.data import Vocabulary, read_prompts
    from stages.grpo.parameters import unfuse
    from stages.grpo.trainer import Trainer
    from stages.weights.tensors import write_rank

    job = read_job(context, world)
    vocabulary = Vocabulary.of(context.inputs["fetch"], job.model)
    data = read_prompts(context.inputs["tokenize"] / "train.mindrecord", vocabulary)
    trainer = Trainer(job, rank, world, data, vocabulary)
    keep = job.train.keep_checkpoints
    checkpoints = Checkpoints(context.work / "checkpoints", rank, world, keep, trainer.barrier)
    resumed = trainer.restore(checkpoints)
    chief = Chief(context, resumed, job.train.steps) if rank == 0 else None
    for step in range(resumed + 1, job.train.steps + 1):
        result = trainer.step(step)
        if chief is not None:
            chief.log(step, result)
        every = job.train.checkpoint_every
        if every and step % every == 0 and step < job.train.steps:
            checkpoints.save(step, trainer.state(), {"updates": trainer.learner.updates})
    shard = unfuse(job.model, trainer.policy.model.weights())
    file = context.output / "train" / f"rank_{rank}" / "model.safetensors"
    write_rank(shard, file, job.model.torch_dtype)
    if chief is not None:
        chief.finish()
    trainer.barrier()  # nobody leaves while another still writes: msrun ends all when one has ended badly


def read_job(context: Context, world: int) -> Job:
    """The typed configuration, checked.

    Raises:
        ConfigError: the layout is beyond this trainer, or does not fit the number of workers.
    """
    from stages.grpo.setup import check_local
    from stages.grpo.trainer import Job

    job = Job(
        model=context.section(ModelConfig, "model"),
        layout=context.section(LayoutConfig, "layout"),
        rollout=context.section(RolloutConfig, "rollout"),
        reward=context.section(RewardConfig, "reward"),
        train=context.section(TrainConfig, "train"),
        seed=context.seed,
        weights=context.inputs["weights"],
        strategies=context.inputs["strategy"],
    )
    check_local(job.layout, job.train, job.rollout)
    cards = job.layout.train.cards
    if cards != world:
        raise ConfigError(
            [Problem("layout.train", job.layout.train.name, f"needs {cards} workers, not {world}")]
        )
    return job


class Chief:
    """What worker 0 alone writes: logs while training goes on, results at its end.

    The logs grow in context.work, which survives a kill, and are copied into the output at the end.
    """

    def __init__(self, context: Context, resumed: int, steps: int) -> None:
        """Continue the logs after step `resumed` (0: begin)."""
        from stages.grpo.metrics import StepLog, TensorBoard

        self.context, self.resumed, self.steps = context, resumed, steps
        self.metrics = StepLog(context.work / "metrics.jsonl", resumed)
        self.completions = StepLog(context.work / "completions.jsonl", resumed)
        self.board = TensorBoard(context.output / "tensorboard", self.metrics.rows)
        self.reward = self.metrics.rows[-1]["reward"] if self.metrics.rows else None

    def log(self, step: int, result: StepResult) -> None:
        """Write one step."""
        row = {"step": step, "time_s": time.time(), **result.metrics}
        self.metrics.append([row])
        self.completions.append(result.rows)
        self.board.add(row)
        self.reward = row["reward"]
        message = f"reward {row['reward']:.3f}, length {row['completion_length']:.1f}"
        self.context.progress(step, self.steps, message, "step")

    def finish(self) -> None:
        """Copy the logs and write result.json."""
        self.board.close()
        output = self.context.output
        for log in (self.metrics, self.completions):
            shutil.copyfile(log.path, output / log.path.name)
        result = {"steps": self.steps, "final_reward": self.reward, "resumed_from": self.resumed or None}
        (output / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
