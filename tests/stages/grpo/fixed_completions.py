"""Ten updates on completions made from the step's number: python fixed_completions.py SPEC.json OUT.npy.

One of the workers of a run; worker 0 writes loss, gradient norm, KL and entropy of each step.
"""

import sys
from pathlib import Path

import numpy as np

from stages.base.context import Context
from stages.grpo import worker
from stages.grpo.stage import read_job


def main(spec, out):
    context = Context.load(Path(spec))
    rank, world = worker.start(context.device_target)
    from stages.grpo.data import Vocabulary, read_prompts
    from stages.grpo.metrics import Clock
    from stages.grpo.trainer import Trainer

    job = read_job(context, world)
    vocabulary = Vocabulary.of(context.inputs["fetch"], job.model)
    data = read_prompts(context.inputs["tokenize"] / "train.mindrecord", vocabulary)
    trainer = Trainer(job, rank, world, data, vocabulary)
    rows = []
    for step in range(1, 11):
        learned = trainer.learn(completions(job, data, step), Clock())
        assert learned.problem is None
        rows.append([learned.metrics[name] for name in ("loss", "grad_norm", "kl", "entropy")])
    if rank == 0:
        np.save(out, np.array(rows))
    trainer.barrier()


def completions(job, data, step):
    from stages.grpo.rollout import Completions
    from stages.grpo.sampled import Sampled
    from stages.rewards.score import RewardScores

    P, G, T = job.train.prompts_per_step, job.rollout.num_generations, job.rollout.max_tokens
    random = np.random.default_rng(step)
    ids = random.integers(3, job.model.vocab_size, (P * G, T)).astype(np.int32)
    length = random.integers(1, T + 1, P * G).astype(np.int32)
    ids[np.arange(T) >= length[:, None]] = 0
    rewards = RewardScores(random.random(P * G).astype(np.float32), {}, {})
    prompts = data.take((np.arange(P) + step * P) % len(data))
    return Sampled(prompts, Completions(ids, length, length == T), [""] * (P * G), rewards)


if __name__ == "__main__":
    main(*sys.argv[1:])
