"""Checks of the stages fetch and fetch_dataset against files that exist when a run is planned."""

from collections.abc import Iterator
from pathlib import Path

from stages.base.errors import InputError, Problem
from stages.base.files import read_object
from stages.plan_checks import Planned, problems_of


def fetch(planned: Planned) -> Iterator[Problem]:
    """Yield the problems of model.path and model.tokenizer_path."""
    model = planned.config.model
    if "fetch" not in planned.pending:
        return
    directory = Path(model.path) if model.source == "local" and model.path else None
    if directory is not None and directory.is_dir():
        yield from problems_of(lambda: _check_model(planned, directory))
    elif directory is not None and planned.is_local:
        yield Problem("model.path", str(directory), "is not a directory", "give a Hugging Face directory")
    if model.tokenizer_path is not None:
        tokenizer = Path(model.tokenizer_path)
        yield from problems_of(lambda: _check_tokenizer(planned, tokenizer))


def fetch_dataset(planned: Planned) -> Iterator[Problem]:
    """Yield a problem if the built-in dataset has fewer distinct questions than rows are requested."""
    from stages.fetch.arith import check_rows

    dataset, seed = planned.config.dataset, planned.config.seed
    arith = dataset.arith if dataset.source == "builtin" else None
    if arith is not None and "fetch_dataset" in planned.pending:
        yield from problems_of(
            lambda: check_rows(arith, seed, dataset.train_rows or 0, dataset.test_rows or 0)
        )


def _check_model(planned: Planned, directory: Path) -> None:
    from stages.fetch import local  # here and below: not needed if nothing has to run
    from stages.tokenizer import special_ids

    model = planned.config.model
    if planned.needs_weights:
        local.check_model(directory, model)
    else:
        file = directory / "config.json"
        local.check_config(read_object(file), model, file)
    if model.tokenizer_path is None and (directory / "tokenizer_config.json").is_file():
        special_ids(directory, model)
        _check_template(planned, directory)


def _check_tokenizer(planned: Planned, directory: Path) -> None:
    from stages.fetch.tokenizer_files import check_fit

    if not directory.is_dir():
        raise InputError(directory, None, "is not a directory", "set model.tokenizer_path")
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
        load_template(directory, special, config.enable_thinking).check(system_turns(config))
