"""What grpo_one_stage.py would refuse or ignore silently, and what a user should know.

Sources are files of mindrlhf 2d0e84d; the rules that mindrlhf's tutorial has, too, are in
stages/engines/mindrlhf/rules.py.
"""

from collections.abc import Iterator

from stages.base.checks import at_least, equal
from stages.base.errors import Problem
from stages.engines.mindrlhf.rules import common_problems, layout_notes
from stages.engines.mindrlhf_one_stage.job import Job
from stages.engines.upstream_keys import leaves

REWARDS = {"accuracy": 1.0, "format": 1.0}
"""The script's only rewards and their weights (grpo_one_stage.py, main)."""


def problems(job: Job) -> Iterator[Problem]:
    """Yield what the script would refuse, ignore silently or die of."""
    yield from common_problems(job)
    yield from _layout(job)
    yield from _training(job)
    yield from _generation(job)
    for name, value in leaves(job.engine.upstream):
        rule = "has no effect: grpoflow adds no keys to the files of grpo_one_stage.py"
        source = "ours: stages/engines/mindrlhf_one_stage/files.py"
        yield Problem(f"engine.upstream.{name}", value, rule, "leave it out", source)


def _layout(job: Job) -> Iterator[Problem]:
    """Yield problems of cards and of the parallel optimizer."""
    yield from at_least(
        "cards",
        job.layout.train.cards,
        2,
        "",
        "get_rank() and cut checkpoints need use_parallel",
        "grpo_one_stage.py",
        "choose a layout of several cards",
    )
    for role in job.roles:
        yield from equal(
            f"layout.{role}.enable_parallel_optimizer",
            job.layout.role(role).enable_parallel_optimizer,
            False,
            "the generation's YAML alone decides",
            "grpo_one_stage.py, build_context",
        )


def _training(job: Job) -> Iterator[Problem]:
    """Yield problems of the learning rate, of updates and of rewards."""
    train, script, rate = job.train, "grpo_one_stage.py", "utils/utils.py, LearningRate"
    yield from equal("train.schedule", train.schedule, "cosine", "its rate falls as a cosine", rate)
    if train.final_share >= 1:
        rule = "must be below 1: its cosine needs a lower end"
        yield Problem("train.final_share", train.final_share, rule, "set it to 0.0", rate)
    why = "it trains once on each step's completions"
    yield from equal("train.num_iterations", train.num_iterations, 1, why, script)
    why, source = "it always decays by 0.1", "utils/configs.py, set_weight_decay"
    yield from equal("train.weight_decay", train.weight_decay, 0.1, why, source)
    reward = job.reward
    if dict(zip(reward.functions, reward.weights, strict=False)) != REWARDS:
        rule = "must be accuracy and format, each with weight 1: no others there"
        remedy = "use reward=think, or train with another engine"
        yield Problem("reward.functions", list(reward.functions), rule, remedy, script)


def _generation(job: Job) -> Iterator[Problem]:
    """Yield problems of the cache and of sampling."""
    path, blocks = "engine.num_blocks", job.engine.num_blocks
    why = "what chunk_size sequences take"
    yield from at_least(path, blocks, job.blocks, "{}", why, "mindformers block_tables.py")
    why, source = "mindformers' generation knows no min_p", "generation_config.py"
    yield from equal("rollout.min_p", job.rollout.min_p, None, why, source)


def notes(job: Job) -> Iterator[str]:
    """Yield notes for the plan about behaviour that no rule forbids."""
    yield (
        f"mindrlhf trains engine.epochs={job.engine.epochs} x (the number of training prompts // "
        f"{job.num_rollouts}) steps; train.steps={job.train.steps} is only the length of its learning rate's "
        "decay"
    )
    yield "it saves weights once, at its end: a run that is stopped begins anew"
    yield "its reference is laid out as layout.generate; layout.reference is not used"
    yield (
        "its tokenizer has Qwen2.5's special ids as constants (qwen2_tokenizer.py, ENDOFTEXTID): a model "
        "with another vocabulary is trained with wrong padding, or ends with an IndexError"
    )
    yield from layout_notes(job)
