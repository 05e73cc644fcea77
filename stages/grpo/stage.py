"""The grpo stage: one worker per card under msrun, or a single process on one card."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from stages.base.checks import demand
from stages.base.context import Context
from stages.base.errors import ConfigError, InputError, Problem, StageError
from stages.base.layout import LayoutConfig
from stages.grpo import checkpoint
from stages.grpo.checkpoint import CHECKPOINTS, FINAL, Checkpoints, read_set
from stages.grpo.columns import dataset_columns
from stages.grpo.config import RolloutConfig, TrainConfig
from stages.grpo.data import Prompts, Vocabulary, read_prompts
from stages.grpo.metrics import StepLog, peak_memory_gib, read_rows
from stages.grpo.parameters import unfuse
from stages.grpo.records import StepRecords, step_arrays
from stages.grpo.rules import prompt_problems, trainer_problems, training_problems
from stages.grpo.stopping import StopRequest
from stages.grpo.trackers.process import end_trackers, start_trackers
from stages.grpo.trainer import StepResult, Trainer, TrainingJob
from stages.models.config import ModelConfig
from stages.rewards.config import RewardConfig
from stages.rewards.correctness import warn_of_words
from stages.rewards.score import prepare
from stages.weights.tensors import write_rank


def run(context: Context, rank: int, world: int) -> None:
    """Train and write this worker's shard; worker 0 writes logs and results too.

    Raises:
        ConfigError: the layout is beyond this trainer, or does not fit the number of workers.
        InputError: weights, data or a checkpoint are missing, damaged or do not fit.
        StageError: training diverged: a loss or gradient is not finite, or the KL exceeds train.max_kl.
    """
    job = read_job(context, world)
    vocabulary = Vocabulary.read(context.inputs["fetch"], job.model)
    records = context.inputs["tokenize"] / "train.mindrecord"
    prompts = read_prompts(records, vocabulary)
    if rank == 0:  # it alone calls the functions
        accepted = prepare(job.reward)
        prompts = replace(prompts, columns=dataset_columns(context, records, len(prompts), accepted))
    training, held_out = hold_out(prompts, job.train)
    if held_out is not None and rank == 0:
        warn_of_words(context, job.reward, held_out.solutions)
    trainer = Trainer(job, rank, world, training, vocabulary, held_out)
    checkpoints, final = (
        Checkpoints(context.work / name, rank, world, keep, job.strategies, context.warn, trainer.minimum)
        for name, keep in ((CHECKPOINTS, job.train.keep_checkpoints), (FINAL, 1))
    )
    resumed, saved = checkpoint.restore(trainer, checkpoints)
    best = Best(**saved.get("best", {}))
    logs = RunLogs(context, resumed, job.train) if rank == 0 else None
    with StopRequest() as stop:
        last = train(trainer, checkpoints, context.work, resumed, best, logs, stop)
    if job.train.checkpoint_every:
        checkpoint.save(trainer, final, last, vars(best))
    chosen = best.step if job.train.keep_best else None
    if chosen is not None and chosen != last:
        trainer.barrier()  # worker 0 has completed the best step's checkpoint
        if not checkpoints.is_complete(chosen):
            remedy = "type the same command again: it goes on from before that step"
            raise InputError(checkpoints.path(chosen), None, "is the best checkpoint, and damaged", remedy)
        shard = read_set(checkpoints.path(chosen), "weights", trainer.policy.strategy, rank)
    else:
        shard = unfuse(job.model, trainer.policy.model.weights())
    file = context.output / "train" / f"rank_{rank}" / "model.safetensors"
    write_rank(shard, file, job.model.param_init_type)
    peaks = trainer.world.arrays(np.array([peak_memory_gib()], np.float32))
    if logs is not None:
        logs.finish(last, chosen, best, [round(float(peak), 3) for peak in peaks[:, 0]])
    trainer.barrier()  # msrun ends all workers when one fails: wait until all have written


def hold_out(prompts: Prompts, train: TrainConfig) -> tuple[Prompts, Prompts | None]:
    """Split prompts into those to train on and those for validation.

    Raises:
        ConfigError: too few are left.
    """
    demand(prompt_problems(train, len(prompts)))
    if not train.validate_every:
        return prompts, None
    left = len(prompts) - train.validation_prompts
    return prompts.take(range(left)), prompts.take(range(left, len(prompts)))


@dataclass
class Best:
    """The best check of the accuracy on held-out prompts so far."""

    step: int | None = None
    """None before the first check."""
    accuracy: float = -1.0
    misses: int = 0
    """Checks since then."""

    def add_check(self, step: int, accuracy: float) -> bool:
        """Count a check; return True if it is better than all before."""
        if accuracy <= self.accuracy:
            self.misses += 1
            return False
        self.step, self.accuracy, self.misses = step, accuracy, 0
        return True

    def should_stop(self, patience: int | None) -> bool:
        """Return True if the last `patience` checks brought no improvement."""
        return patience is not None and self.misses >= patience


def train(
    trainer: Trainer, checkpoints: Checkpoints, work: Path, resumed: int, best: Best, logs: RunLogs | None,
    stop: StopRequest,
) -> int:  # fmt: skip
    """Train after step `resumed` until the last step or train.patience; return the last step.

    Raises:
        Stopped: a signal asked a worker to stop, and a checkpoint was written; not without checkpoints.
        StageError: training diverged; the message names step, batch and last good checkpoint.
    """
    config, step = trainer.job.train, resumed
    if best.step is None and config.validate_every:
        best.add_check(step, trainer.validate())
        if config.keep_best:
            checkpoint.save(trainer, checkpoints, step, vars(best))
    while step < config.steps and not best.should_stop(config.patience):
        step += 1
        result = trainer.step(step)
        if result.learned.problem is not None:
            batch = work / f"diverged_step_{step:06d}.jsonl"
            if logs is not None:
                logs.keep_batch(batch, step, result)
            trainer.barrier()  # msrun ends worker 0 when another fails: wait until it has written
            good = checkpoints.steps()
            raise StageError(
                f"train: step {step}: {result.learned.problem}; its prompts, completions and rewards are in "
                f"{batch}; last good checkpoint: {checkpoints.path(good[-1]) if good else 'none'}; "
                "lower train.learning_rate, or raise train.beta"
            )
        metrics, better = dict(result.metrics), False
        if config.validate_every and (step % config.validate_every == 0 or step == config.steps):
            began = time.monotonic()
            metrics["validation_accuracy"] = trainer.validate()
            metrics["validation_s"] = time.monotonic() - began
            better = best.add_check(step, metrics["validation_accuracy"])
        if config.checkpoint_every and step < config.steps:
            stop.listen()  # before the step is logged: a sweep may stop what it reads there
        if logs is not None:
            logs.log(step, metrics, result)
        due = config.checkpoint_every and step % config.checkpoint_every == 0 and step < config.steps
        _save(trainer, checkpoints, step, best, stop, due or (better and config.keep_best))
    return step


def _save(
    trainer: Trainer, checkpoints: Checkpoints, step: int, best: Best, stop: StopRequest, due: bool
) -> None:
    """Write a checkpoint if it is due, or if a signal asked a worker to stop; then raise Stopped."""
    config, stops = trainer.job.train, False
    if config.checkpoint_every and step < config.steps:
        stops = trainer.minimum(int(not stop.is_noted)) == 0  # all workers stop after the same step
    if due or stops:
        checkpoint.save(trainer, checkpoints, step, vars(best))
    if stops:
        trainer.barrier()  # msrun ends worker 0 when another ends: wait until it has written
        raise stop.stopped(step)


def read_job(context: Context, world: int) -> TrainingJob:
    """Read the typed configuration and check it.

    Raises:
        ConfigError: the layout is beyond this trainer, or does not fit the number of workers.
    """
    job = TrainingJob(
        model=context.section(ModelConfig, "model"),
        layout=context.section(LayoutConfig, "layout"),
        rollout=context.section(RolloutConfig, "rollout"),
        reward=context.section(RewardConfig, "reward"),
        train=context.section(TrainConfig, "train"),
        seed=context.seed,
        weights=context.inputs["weights"],
        strategies=context.inputs["strategy"],
    )
    problems = [*trainer_problems(job), *training_problems(job)]
    cards = job.layout.train.cards
    if cards != world:
        rule = f"needs {cards} workers, not {world}"
        problems.append(Problem("layout.train", job.layout.train.name, rule, f"start {cards}"))
    if problems:
        raise ConfigError(problems)
    return job


MAX_WARNINGS = 5
"""Different failures of rewards that are reported; messages with numbers would be new at each step."""


class RunLogs:
    """Logs and results of a run, written by worker 0.

    The logs grow in context.work, which survives a kill, and are copied into the output at the end.
    """

    def __init__(self, context: Context, resumed: int, config: TrainConfig) -> None:
        """Continue the logs after step `resumed` (0: begin)."""
        from stages.grpo.trackers.tensorboard import TensorBoard  # worker 0 alone needs it

        self.context, self.resumed, self.config = context, resumed, config
        self.metrics = StepLog(context.work / "metrics.jsonl", resumed)
        self.completions = StepLog(context.work / "completions.jsonl", resumed)
        self.records = StepRecords(context.work, resumed)
        self.board = TensorBoard(context.output / "tensorboard", context.work.name, {})
        for row in self.metrics.rows:
            self.board.add(row)
        self.trackers = start_trackers(config.loggers, context, self.metrics.path)
        self.warned: set[tuple[str, str]] = set()

    def log(self, step: int, metrics: Mapping[str, float], result: StepResult) -> None:
        """Write one step."""
        row = {"step": step, "time_s": time.time(), **metrics}
        self.metrics.append([row])
        if self.config.logged_completions and step % self.config.completions_every == 0:
            arrays = step_arrays(result.sampled, result.learned, result.groups)
            rows = result.sampled.rows(step, self.config.logged_completions, arrays["advantages"])
            self.completions.append(rows)
            self.records.write(step, arrays)
        self.board.add(row)
        self._warn_of_rewards(step, result)
        message = f"reward {row['reward']:.3f}, length {row['completion_length']:.1f}"
        message += "".join(
            f"; {tracker.name} has stopped, see the log" for tracker in self.trackers if tracker.has_stopped()
        )
        self.context.progress(step, self.config.steps, message, "steps")

    def _warn_of_rewards(self, step: int, result: StepResult) -> None:
        """Warn of each new failure message of a reward function; repeated ones are only counted."""
        scores = result.sampled.rewards
        for name, message in scores.messages.items():
            if (name, message) not in self.warned and len(self.warned) < MAX_WARNINGS:
                count = f"{scores.failures[name]} of {len(result.sampled.texts)} completions of step {step}"
                remedy = "; raise reward.timeout_s" if scores.late[name] else ""
                self.context.warn(f"reward {name}: no value for {count}, which count 0: {message}{remedy}")
            self.warned.add((name, message))
        for name, message in scores.single.items():
            if (name, "") not in self.warned:
                rule = f"scored one by one in step {step}, without the others of the step"
                self.context.warn(f"reward {name}: {rule}, because the call with all failed: {message}")
            self.warned.add((name, ""))

    def keep_batch(self, file: Path, step: int, result: StepResult) -> None:
        """Write all completions of a diverged step."""
        advantages = step_arrays(result.sampled, result.learned, result.groups)["advantages"]
        rows = result.sampled.rows(step, len(result.sampled.texts), advantages)
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")

    def finish(self, last: int, chosen: int | None, best: Best, peaks_gib: Sequence[float]) -> None:
        """Copy the logs and write result.json, with the peak memory of each rank."""
        self.board.close()
        end_trackers(self.trackers)
        rows = read_rows(self.metrics.path)
        failures = sum(row["reward_failures"] for row in rows)
        if failures:
            message = "rewards could not be computed and counted 0: reward_failures in metrics.jsonl"
            self.context.warn(f"{failures:g} {message}")
        output = self.context.output
        for log in (self.metrics, self.completions):
            shutil.copyfile(log.path, output / log.path.name)
        self.records.copy_to(output)
        reward = rows[-1]["reward"] if rows else None
        result = {"steps": last, "final_reward": reward, "resumed_from": self.resumed or None}
        result["peak_memory_gib"] = peaks_gib
        if chosen is not None and best.accuracy == 0:
            message = f"no check found a right answer, so the result is the model of step {chosen}"
            self.context.warn(f"train.keep_best: {message}; set it to false for that of the last step")
        if self.config.validate_every:
            result |= {"weights_of_step": last if chosen is None else chosen}
            result |= {"best_step": best.step, "best_accuracy": best.accuracy}
        self.context.write_result(result)
