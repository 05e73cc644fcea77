"""Checks of the stages sft and grpo of engine=local against files and artifacts that exist already."""

from collections.abc import Iterator
from pathlib import Path

from stages.base.errors import ConfigError, InputError, Problem
from stages.grpo import checkpoint_files
from stages.grpo.rules import EXAMPLES, PROMPTS, ExampleCount, PromptCount, check_resumed
from stages.plan_checks import Planned
from stages.tokenize.counts import count_records

RESUME_REMEDY = "name another checkpoint"


def sft(planned: Planned) -> Iterator[Problem]:
    """Yield a problem if a finished tokenize stage made too few examples."""
    config, tokenized = planned.config, planned.artifacts.get("tokenize")
    if config.engine.name == "local" and config.sft.enabled and "sft" in planned.pending and tokenized:
        held_out = 0 if config.sft_data.path is not None else config.sft.check_prompts
        left = max(0, count_records(tokenized, "sft") - held_out)
        yield from EXAMPLES.check(ExampleCount(config.sft, left))


def grpo(planned: Planned) -> Iterator[Problem]:
    """Yield the problems of train.resume_from, and one if a finished tokenize stage made too few prompts."""
    config, tokenized = planned.config, planned.artifacts.get("tokenize")
    if config.engine.name != "local" or "grpo" not in planned.pending:
        return
    if config.train.resume_from is not None:
        yield from _resumed(planned, Path(config.train.resume_from))
    if tokenized:
        yield from PROMPTS.check(PromptCount(config.train, count_records(tokenized, "train")))


def _resumed(planned: Planned, checkpoint: Path) -> Iterator[Problem]:
    """Check that a checkpoint is undamaged, and that its step is early enough."""
    try:
        listed, state = checkpoint_files.listed(checkpoint), checkpoint_files.read_state(checkpoint)
        yield from check_resumed(planned.config.train, state)
    except InputError as error:
        yield error.problem
        return
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        file = checkpoint / checkpoint_files.STATE
        yield Problem(str(file), None, f"is no checkpoint's state ({error!r})", RESUME_REMEDY)
        return
    for name, entry in listed.items():
        try:
            is_intact = planned.digest(checkpoint / name) == entry.sha256
        except ConfigError:
            is_intact = False
        if not is_intact:
            rule = f"is damaged: the content of {name} has changed since it was written"
            yield Problem("train.resume_from", str(checkpoint), rule, RESUME_REMEDY)
