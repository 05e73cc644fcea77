"""What files and artifacts at hand say against a plan, and its values alone do not.

A stage would refuse the same, by the same functions, but perhaps hours later. What only a download or
a tokenizer's training can tell is checked as soon as that stage is done.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline import engines
from pipeline.config.load import Config
from pipeline.errors import ConfigError, InputError, Problem
from pipeline.fingerprint import DIGESTS, DigestCache
from pipeline.plan.graph import Plan
from pipeline.store.store import Store
from stages.base.identity import Checkout, marked
from stages.grpo import checkpoint_files


def check(plan: Plan, store: Store, weights: bool = True) -> None:
    """Refuse what a stage of the plan would refuse.

    Raises:
        ConfigError: with every problem that was found.
    """
    found = [
        *_launcher(plan.config),
        *_sources(plan, store, weights),
        *_places(plan, store),
        *_resumed(plan, store),
        *_rows(plan, store),
    ]
    if found:
        raise ConfigError(found)


def _launcher(config: Config) -> Iterator[Problem]:
    """Not a rule between fields, for doctor tries a launcher's machines whatever the engine."""
    alone = config.engine.name == "local" and config.engine.sft == "local"
    if alone and config.launcher.name != "local":
        rule = "is for engines that are programs of their own: engine=local runs on this machine"
        yield Problem("launcher", config.launcher.name, rule, "choose launcher=local, or another engine")


def _sources(plan: Plan, store: Store, weights: bool) -> Iterator[Problem]:
    """What fetch will refuse of the user's own files; of what was fetched already, nothing is asked."""
    config = plan.config
    if store.problem(plan.spec("fetch_dataset").key) is not None and config.dataset.source == "builtin":
        yield from _refused(lambda: _addition(config))
    if store.problem(plan.spec("fetch").key) is None:
        return
    own = Path(config.model.path) if config.model.source == "local" and config.model.path else None
    if own is not None and own.is_dir():
        yield from _refused(lambda: _model(config, own, weights))
    elif own is not None and config.launcher.name == "local":  # else another machine may have it
        yield Problem("model.path", str(own), "is not a directory", "give a Hugging Face directory")
    if config.model.tokenizer_path is not None:
        yield from _refused(lambda: _tokenizer(config, Path(config.model.tokenizer_path or "")))


def _places(plan: Plan, store: Store) -> Iterator[Problem]:
    """Checkouts, interpreters and scripts of a program that is to run on this machine, outside containers."""
    config = plan.config
    waits = (spec for spec in plan.asked if spec.program is not None)
    if config.launcher.name != "local" or all(store.problem(spec.key) is None for spec in waits):
        return
    for engine in engines.chosen(config):
        settings = engine.settings(config)
        if not engine.programs or settings.container:
            continue
        for key in marked(type(settings), Checkout):
            home = getattr(settings, key)
            if home is not None and not Path(home).is_dir():
                yield Problem(f"{engine.section}.{key}", home, "is not a directory", "give a checkout's")
        for key in ("python", "convert_python"):
            program = getattr(settings, key, None)
            if program is None or shutil.which(program) is not None:
                continue
            if "/" in program or not settings.env_scripts:  # a script may set PATH
                rule = "is no program that can be executed here"
                yield Problem(f"{engine.section}.{key}", program, rule, "give an interpreter's path")
        for number, script in enumerate(settings.env_scripts):
            if not Path(script).is_file():
                rule = "is not a file"
                yield Problem(
                    f"{engine.section}.env_scripts[{number}]", script, rule, "give a script to source"
                )


def _refused(look: Callable[[], None]) -> Iterator[Problem]:
    try:
        look()
    except ConfigError as error:
        yield from error.problems
    except InputError as error:
        yield error.problem


def _model(config: Config, directory: Path, weights: bool) -> None:
    from stages.fetch import local  # here and below: a plan of what is done already need not load it
    from stages.tokenize.tokenizer import read_json, special_ids

    if weights:
        local.check_model(directory, config.model)
    else:
        local.check_config(read_json(directory / "config.json"), config.model, directory / "config.json")
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
    """The checkpoint of another run, where engine=local is to go on from one: whole, and early enough."""
    start, config = plan.config.train.resume_from, plan.config
    if start is None or config.engine.name != "local" or store.problem(plan.spec("grpo").key) is None:
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
            whole = cache.digest(Path(start) / name) == written.sha256
        except ConfigError:
            whole = False
        if not whole:
            rule = f"is damaged: {name} is not what was written there"
            yield Problem("train.resume_from", start, rule, "name another checkpoint")


def _rows(plan: Plan, store: Store) -> Iterator[Problem]:
    """Whether tokenize, where it is done, has made as many rows as training takes."""
    key = plan.spec("tokenize").key
    if plan.config.engine.name == "local" and store.problem(key) is None:
        yield from check_rows(plan.config, store.path(key) / "result.json")


def check_rows(config: Config, result: Path) -> Iterator[Problem]:
    """Whether training with engine=local has enough of the rows that tokenize's `result` counts."""
    from stages.grpo.rules import EXAMPLES, PROMPTS, Held

    cards: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))["files"]
    yield from PROMPTS.check(Held(config.train, cards["train"]["records"]))
    if config.sft.enabled:
        held = 0 if config.sft_data.path is not None else config.sft.check_prompts
        yield from EXAMPLES.check(Held(config.sft, max(0, cards["sft"]["records"] - held)))
