"""Entry points of sft, grpo and evaluate: they set up MindSpore, then import the modules that use it."""

from stages.base.context import Context
from stages.grpo import worker


def sft(context: Context) -> None:
    """Run the sft stage."""
    worker.start(context.device_target)
    from stages.grpo import sft

    sft.run(context)


def grpo(context: Context) -> None:
    """Run the grpo stage as one of its workers."""
    rank, world = worker.start(context.device_target)
    from stages.grpo import stage

    stage.run(context, rank, world)


def evaluate(context: Context) -> None:
    """Run the evaluate stage."""
    worker.start(context.device_target)
    from stages.grpo import evaluate

    evaluate.run(context)
