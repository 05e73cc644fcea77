"""Checks of a plan against existing files and artifacts.

The stages make the same checks with the same functions, but perhaps hours later. Checks that depend on a
download or on a tokenizer's training are made as soon as that stage has finished.
"""

import json
import shutil
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from pipeline import engines
from pipeline.config.sections import Config
from pipeline.errors import ConfigError, InputError, Problem
from pipeline.fingerprint import DIGESTS, DigestCache
from pipeline.plan import checkouts, interpreter
from pipeline.plan.graph import Plan
from pipeline.store.store import Store
from stages.base.engine import Engine
from stages.base.files import read_json
from stages.base.identity import Checkout, marked
from stages.grpo import checkpoint_files
from stages.models.families import family_of, recognised


def check(plan: Plan, store: Store, weights: bool = True) -> None:
    """Check everything that a stage of the plan would refuse.

    Raises:
        ConfigError: a stage would refuse its inputs; lists all problems.
    """
    problems = [
        *_launcher(plan.config),
        *_sources(plan, store, weights),
        *_programs(plan, store),
        *_resumed(plan, store),
        *_rows(plan, store),
    ]
    if problems:
        raise ConfigError(problems)


def _launcher(config: Config) -> Iterator[Problem]:
    """Check that the engine can use the launcher.

    This is not one of config/rules.py, because doctor checks a launcher's machines with any engine.
    """
    is_local = config.engine.name == "local" and config.engine.sft == "local"
    if is_local and config.launcher.name != "local":
        rule = "is for engines that are programs of their own: engine=local runs on this machine"
        yield Problem("launcher", config.launcher.name, rule, "choose launcher=local, or another engine")


def _sources(plan: Plan, store: Store, weights: bool) -> Iterator[Problem]:
    """Yield the problems of the user's files; of a fetched model only those of config.json."""
    config = plan.config
    if config.dataset.source == "builtin" and _is_pending(plan, store, "fetch_dataset"):
        yield from _refused(lambda: _addition(config))
    if not _is_pending(plan, store, "fetch"):
        fetched = plan.spec("fetch").key
        if config.model.source != "builtin" and store.problem(fetched) is None:
            yield from _refused(lambda: _fetched(config, store.path(fetched)))
        return
    directory = Path(config.model.path) if config.model.source == "local" and config.model.path else None
    if directory is not None and directory.is_dir():
        yield from _refused(lambda: _model(config, directory, weights))
    elif (
        directory is not None and config.launcher.name == "local"
    ):  # with other launchers another machine may have it
        yield Problem("model.path", str(directory), "is not a directory", "give a Hugging Face directory")
    if config.model.tokenizer_path is not None:
        yield from _refused(lambda: _tokenizer(config, Path(config.model.tokenizer_path or "")))


def _programs(plan: Plan, store: Store) -> Iterator[Problem]:
    """Yield the problems of checkouts, interpreters and scripts of the programs that this plan runs."""
    config = plan.config
    programs = (spec.name for spec in plan.requested if spec.program is not None)
    if not any(_is_pending(plan, store, name) for name in programs):
        return
    for engine in engines.chosen(config):
        if engine.programs:
            yield from checkouts.faults(engine, config)
            if config.launcher.name == "local" and not engine.settings(config).container:
                yield from _files(engine, config)


def _files(engine: Engine, config: Config) -> Iterator[Problem]:
    """Yield a problem for each file missing on this machine; not for other machines or containers."""
    settings = engine.settings(config)
    for key in marked(type(settings), Checkout):
        home = getattr(settings, key)
        if home is not None and not Path(home).is_dir():
            yield Problem(f"{engine.settings_section}.{key}", home, "is not a directory", "give a checkout's")
    for key in ("python", "convert_python"):
        program = getattr(settings, key, None)
        if program is None or ("/" not in program and settings.env_scripts):  # a script may set PATH
            continue
        if shutil.which(program) is None:
            rule = "is no program that can be executed here"
            yield Problem(f"{engine.settings_section}.{key}", program, rule, "give an interpreter's path")
        elif key == "python":
            setting = f"{engine.settings_section}.{key}"
            yield from interpreter.missing(setting, program, engine.imports, settings.env)
    for number, script in enumerate(settings.env_scripts):
        if not Path(script).is_file():
            rule = "is not a file"
            yield Problem(
                f"{engine.settings_section}.env_scripts[{number}]", script, rule, "give a script to source"
            )


def _is_pending(plan: Plan, store: Store, stage: str) -> bool:
    """Return True if a run builds the stage: it is requested, and its artifact is missing or rebuilt."""
    requested = (spec for spec in plan.requested if spec.name == stage)
    return any(stage in plan.rebuilt or store.problem(spec.key) is not None for spec in requested)


def _refused(check: Callable[[], None]) -> Iterator[Problem]:
    """Yield the problems that a check raises."""
    try:
        check()
    except ConfigError as error:
        yield from error.problems
    except InputError as error:
        yield error.problem


def _fetched(config: Config, directory: Path) -> None:
    """Check config.json of an artifact again, because an earlier release may have accepted it."""
    file = directory / "config.json"
    values = read_json(file) if file.is_file() else None
    if isinstance(values, dict) and recognised(values) is family_of(config.model):
        _config_json(config, directory)


def _config_json(config: Config, directory: Path) -> None:
    from stages.fetch import local  # here and below: not needed if nothing has to run
    from stages.tokenize import tokenizer

    file = directory / "config.json"
    local.check_config(tokenizer.read_json(file), config.model, file)


def _model(config: Config, directory: Path, weights: bool) -> None:
    from stages.fetch import local
    from stages.tokenize.tokenizer import special_ids

    if weights:
        local.check_model(directory, config.model)
    else:
        _config_json(config, directory)
    if config.model.tokenizer_path is None and (directory / "tokenizer_config.json").is_file():
        special_ids(directory, config.model)


def _tokenizer(config: Config, directory: Path) -> None:
    from stages.fetch.tokenizer_files import check_fit

    if not directory.is_dir():
        raise InputError(directory, None, "is not a directory", "set model.tokenizer_path")
    check_fit(directory, config.model.vocab_size)


def _addition(config: Config) -> None:
    from stages.fetch.arith import check_rows

    dataset = config.dataset
    if dataset.arith is not None:
        check_rows(dataset.arith, config.seed, dataset.train_rows or 0, dataset.test_rows or 0)


def _resumed(plan: Plan, store: Store) -> Iterator[Problem]:
    """Check train.resume_from of engine=local: the checkpoint is undamaged, and its step is early enough."""
    start, config = plan.config.train.resume_from, plan.config
    if start is None or config.engine.name != "local" or not _is_pending(plan, store, "grpo"):
        return
    from stages.grpo.rules import check_resumed

    try:
        named, state = checkpoint_files.listed(Path(start)), checkpoint_files.read_state(Path(start))
        step = int(state["step"])
    except InputError as error:
        yield error.problem
        return
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        file = Path(start) / checkpoint_files.STATE
        yield Problem(str(file), None, f"is no checkpoint's state ({error!r})", "name another checkpoint")
        return
    yield from check_resumed(config.train, step)
    cache = DigestCache(store.root / DIGESTS)
    for name, written in named.items():
        try:
            is_intact = cache.digest(Path(start) / name) == written.sha256
        except ConfigError:
            is_intact = False
        if not is_intact:
            rule = f"is damaged: {name} is not what was written there"
            yield Problem("train.resume_from", start, rule, "name another checkpoint")


def _rows(plan: Plan, store: Store) -> Iterator[Problem]:
    """Check that a finished tokenize stage made as many rows as the requested training stages take."""
    key = plan.spec("tokenize").key
    pending = [stage for stage in ("sft", "grpo") if _is_pending(plan, store, stage)]
    if plan.config.engine.name == "local" and pending and store.problem(key) is None:
        yield from check_rows(plan.config, store.path(key) / "result.json", pending)


def check_rows(config: Config, result: Path, stages: Collection[str]) -> Iterator[Problem]:
    """Check that the training `stages` have enough of the rows that tokenize's `result` counts."""
    from stages.grpo.rules import EXAMPLES, PROMPTS, Held

    files: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))["files"]
    if "grpo" in stages:
        yield from PROMPTS.check(Held(config.train, files["train"]["records"]))
    if "sft" in stages and config.sft.enabled:
        held = 0 if config.sft_data.path is not None else config.sft.check_prompts
        yield from EXAMPLES.check(Held(config.sft, max(0, files["sft"]["records"] - held)))
