"""Requirements of a rehearsal on this machine: checkouts, a tokenizer, an interpreter."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from launch.machine import checks
from pipeline.errors import Problem
from pipeline.plan.graph import Plan
from pipeline.store.store import Store
from stages.engines.engine import Engine, Window
from stages.engines.programs import VERSIONS, windows

MINDFORMERS_PACKAGES: tuple[Window, ...] = (
    *windows(VERSIONS, "mindformers"),
    ("transformers", ">=4.51,<5", "mindformers 1.6.0 wants 4.51.3"),
    ("mindpet", "", "mindformers imports it"),
    ("datasets", "", "mindformers imports it"),
)
"""Packages that mindrlhf and mindformers need on a CPU; the checkouts are on PYTHONPATH."""
MINDFORMERS_INSTALL = (
    "make one that can rehearse: python3.11 -m venv DIR && DIR/bin/pip install mindspore==2.7.0"
    " mindformers==1.6.0 'numpy<2' 'safetensors<0.8', then engine.python=DIR/bin/python"
)
"""How to create an environment for rehearsals. It installs the package mindformers for its requirements;
rehearsals import the checkout, because only that contains research/."""


def missing_inputs(plan: Plan, engine: Engine[Any]) -> Iterator[Problem]:
    """Yield a problem for each missing checkout, and for a missing tokenizer."""
    for checkout in engine.needed(plan.config):
        if getattr(engine.settings_of(plan.config), checkout.key) is None:
            rule = "is required: a rehearsal executes it"
            yield Problem(checkout.setting, None, rule, "give the checkout's directory")
    if tokenizer_directory(plan) is None:
        rule = "is needed with config.json and the tokenizer's files; weights are not"
        remedy = "give model.path=DIR or model.tokenizer_path=DIR"
        yield Problem("model.path", plan.config.model.path, rule, remedy)


def missing_packages(
    setting: str, python: str | None, packages: Sequence[Window], remedy: str
) -> Iterator[Problem]:
    """Yield a problem if an engine's interpreter lacks packages or has unsuitable versions."""
    chosen = checks.interpreter(python)
    versions = None if chosen is None else checks.versions(chosen, [name for name, *_ in packages])
    if chosen is None or versions is None:
        yield Problem(setting, chosen or python, "does not answer", remedy)
        return
    results = checks.packages(packages, versions.get, chosen)
    problems = [f"{check.name} {check.found}" for check in results if check.status == "problem"]
    if problems:
        yield Problem(setting, chosen, f"lacks packages: {', '.join(problems)}", remedy)


def missing_for_mindformers(plan: Plan, engine: Engine[Any]) -> Iterator[Problem]:
    """Yield a problem for each missing requirement of mindformers, or of an engine that builds on it."""
    yield from missing_inputs(plan, engine)
    settings, section = engine.settings_of(plan.config), engine.section
    if settings.container:
        rule = f"a rehearsal starts {engine.name} on this machine, where its replacements are"
        yield Problem(
            f"{section}.container", list(settings.container), rule, "rehearse inside it, or unset it"
        )
    yield from missing_packages(
        f"{section}.python", settings.python, MINDFORMERS_PACKAGES, MINDFORMERS_INSTALL
    )


def tokenizer_directory(plan: Plan) -> Path | None:
    """Return the directory of the model's tokenizer, configured or fetched; None if it is not here."""
    model = plan.config.model
    for path in (model.tokenizer_path, model.path):
        if path is not None:
            return Path(path) if Path(path).is_dir() else None
    store = Store(Path(plan.config.store))
    fetched = plan.spec("fetch").key
    return store.path(fetched) if store.problem(fetched) is None else None
