"""The grpo stage: one worker per card under msrun, or a single process on one card."""

from __future__ import annotations

import json
import shutil
import time

from stages.context import Context
from stages.errors import ConfigError, InputError, Problem
from stages.grpo import worker
from stages.grpo.config import RolloutConfig, TrainConfig
from stages.layout import LayoutConfig
from stages.model_config import ModelConfig
from stages.rewards.config import RewardConfig


def run(context: Context) -> None:
    """Train and write this worker's shard; worker 0 writes logs and results too.

    Raises:
        ConfigError: the layout is beyond this trainer, or does not fit the number of workers.
        InputError: weights or data are missing or do not fit.
    """
    rank, world = worker.start()
    from stages.grpo.checkpoint import Checkpoints
    from stages.grpo.data import Vocabulary, read_prompts
    from stages.grpo.metrics import StepLog, TensorBoard
    from stages.grpo.parameters import unfuse
    from stages.grpo.setup import check_local
    from stages.grpo.trainer import Job, Trainer
    from stages.weights.tensors import write_rank

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
    if job.layout.train.cards != world:
        raise ConfigError([Problem("layout.train", job.layout.train.name, f"needs {job.layout.train.cards} workers, not {world}")])
    vocabulary = Vocabulary.of(context.inputs["fetch"], job.model)
    data = read_prompts(context.inputs["tokenize"] / "train.mindrecord", vocabulary)
    if len(data) < job.train.prompts_per_step:
        raise InputError("train.prompts_per_step", job.train.prompts_per_step, f"at most the {len(data)} training prompts")
    trainer = Trainer(job, rank, world, data, vocabulary)
    checkpoints = Checkpoints(context.work / "checkpoints", rank, world, job.train.keep_checkpoints, trainer.barrier)
    resumed = trainer.restore(checkpoints)
    chief = rank == 0
    if chief:
        metrics_log = StepLog(context.work / "metrics.jsonl", resumed)
        completions_log = StepLog(context.work / "completions.jsonl", resumed)
        board = TensorBoard(context.output / "tensorboard", metrics_log.rows)
    result = None
    for step in range(resumed + 1, job.train.steps + 1):
        result = trainer.step(step)
        if chief:
            row = {"step": step, "time_s": time.time(), **result.metrics}
            metrics_log.append([row])
            completions_log.append(result.rows)
            board.add(row)
            message = f"reward {row['reward']:.3f}, length {row['completion_length']:.1f}"
            context.progress(step, job.train.steps, message, "step")
        if job.train.checkpoint_every and step % job.train.checkpoint_every == 0 and step < job.train.steps:
            checkpoints.save(step, trainer.state(), {"updates": trainer.learner.updates})
    shard = unfuse(job.model, trainer.policy.model.weights())
    write_rank(shard, context.output / "train" / f"rank_{rank}" / "model.safetensors", job.model.torch_dtype)
    if chief:
        board.close()
        for log in (metrics_log, completions_log):
            shutil.copyfile(log.path, context.output / log.path.name)
        summary = {
            "steps": job.train.steps,
            "final_reward": result.metrics["reward"] if result else None,
            "resumed_from": resumed or None,
        }
        (context.output / "result.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    trainer.barrier()  # nobody leaves while another still writes: msrun ends all when one has ended badly
