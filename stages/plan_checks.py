"""Checks of a plan against existing files and artifacts.

A stage makes the same checks again when it runs, perhaps hours later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stages.base.errors import ConfigError, InputError, Problem
from stages.base.files import read_object, understood
from stages.grpo.checkpoint import REMEDY, STATE, listed, read_state
from stages.grpo.rules import check_resumed, example_problems, prompt_problems
from stages.tokenize.counts import count_records

if TYPE_CHECKING:
    from stages.sections import Sections


@dataclass(frozen=True)
class Planned:
    """A plan as the checks see it."""

    config: Sections
    artifacts: Mapping[str, Path]
    """Stage -> directory of its complete artifact."""
    pending: Set[str]
    """Requested stages that will run."""
    digest: Callable[[Path], str]
    """SHA-256 of a user's file; raises ConfigError if it cannot be read."""
    needs_weights: bool = True
    """False: model.path may hold config.json and tokenizer only."""
    is_local: bool = True
    """True if the stages run on this machine, which must have the user's files."""


def problems(planned: Planned) -> Iterator[Problem]:
    """Yield the problems for which a pending stage would fail."""
    for stage, check in CHECKS.items():
        if stage in planned.pending:
            yield from check(planned)
    yield from row_problems(planned)


def row_problems(planned: Planned) -> Iterator[Problem]:
    """Yield a problem for each pending stage of engine=local for which tokenize made too few rows."""
    config, tokenized = planned.config, planned.artifacts.get("tokenize")
    if config.engine.name != "local" or tokenized is None:
        return
    if "sft" in planned.pending and config.sft.enabled:
        held_out = 0 if config.sft_data.path is not None else config.sft.check_prompts
        left = max(0, count_records(tokenized, "sft") - held_out)
        yield from example_problems(config.sft, left)
    if "grpo" in planned.pending:
        yield from prompt_problems(config.train, count_records(tokenized, "train"))


def _fetch(planned: Planned) -> Iterator[Problem]:
    """Yield the problems of model.path and model.tokenizer_path."""
    model = planned.config.model
    directory = Path(model.path) if model.source == "local" and model.path else None
    if directory is not None and directory.is_dir():
        yield from _raised(lambda: _check_model(planned, directory))
    elif directory is not None and planned.is_local:
        yield Problem("model.path", str(directory), "is not a directory", "give a Hugging Face directory")
    if model.tokenizer_path is not None:
        tokenizer = Path(model.tokenizer_path)
        yield from _raised(lambda: _check_tokenizer(planned, tokenizer))


def _fetch_dataset(planned: Planned) -> Iterator[Problem]:
    """Yield a problem if the built-in dataset has fewer distinct questions than rows are requested."""
    from stages.fetch.arith import check_rows  # here and below: not needed if nothing has to run

    dataset, seed = planned.config.dataset, planned.config.seed
    if dataset.source == "builtin" and (arith := dataset.arith) is not None:
        yield from _raised(lambda: check_rows(arith, seed, dataset.train_rows or 0, dataset.test_rows or 0))


def _grpo(planned: Planned) -> Iterator[Problem]:
    """Yield the problems of train.resume_from, which engine=local reads."""
    config = planned.config
    if config.engine.name == "local" and config.train.resume_from is not None:
        yield from _raised(lambda: _check_checkpoint(planned, Path(config.train.resume_from or "")))


CHECKS = {"fetch": _fetch, "fetch_dataset": _fetch_dataset, "grpo": _grpo}


def _raised(check: Callable[[], object]) -> Iterator[Problem]:
    """Yield the problems that a check raises."""
    try:
        check()
    except ConfigError as error:
        yield from error.problems
    except InputError as error:
        yield error.problem


def _check_model(planned: Planned, directory: Path) -> None:
    from stages.fetch import local
    from stages.tokenizer import require_files, special_ids

    model = planned.config.model
    if planned.needs_weights:
        local.check_model(directory, model)
    else:
        file = directory / "config.json"
        local.check_config(read_object(file), model, file)
    if model.tokenizer_path is None:
        if any(directory.glob("*.model")):  # a plan may be made before the other files are there
            require_files(directory)
        if (directory / "tokenizer_config.json").is_file():
            special_ids(directory, model)
            _check_template(planned, directory)


def _check_tokenizer(planned: Planned, directory: Path) -> None:
    from stages.fetch.tokenizer_files import check_fit
    from stages.tokenizer import require_files

    if not directory.is_dir():
        raise InputError(directory, None, "is not a directory", "set model.tokenizer_path")
    require_files(directory)
    check_fit(directory, planned.config.model.vocab_size)
    if (directory / "tokenizer_config.json").is_file():  # fetch writes a missing one
        _check_template(planned, directory)


def _check_template(planned: Planned, directory: Path) -> None:
    from stages.tokenize.chat import load_template
    from stages.tokenize.text import system_turns
    from stages.tokenizer import token_ids

    config = planned.config.tokenize
    if "tokenize" in planned.pending and (config.chat_template or planned.config.sft_data.path is not None):
        special = token_ids(directory, read_object(directory / "tokenizer_config.json"))
        template = load_template(directory, special, config.enable_thinking)
        template.check(system_turns(config))
        if planned.config.rollout.tools:
            template.check_tools()


def _check_checkpoint(planned: Planned, checkpoint: Path) -> None:
    """Check that a checkpoint is undamaged, and that its step is early enough."""
    with understood(checkpoint / STATE, "a checkpoint's state", REMEDY):
        problems = [*check_resumed(planned.config.train, read_state(checkpoint))]
    for name, entry in listed(checkpoint).items():
        try:
            is_intact = planned.digest(checkpoint / name) == entry["sha256"]
        except ConfigError:
            is_intact = False
        if not is_intact:
            rule = f"is damaged: the content of {name} has changed since it was written"
            problems.append(Problem("train.resume_from", str(checkpoint), rule, REMEDY))
    if problems:
        raise ConfigError(problems)
