"""What a rehearsal needs of this machine: checkouts, a tokenizer, an interpreter."""

from collections.abc import Iterator
from pathlib import Path

from launch.machine import checks
from pipeline.errors import Problem
from pipeline.plan.graph import Plan
from pipeline.store.store import Store
from stages.base.engine import Engine, Window
from stages.engines.mindformers.checkout import KNOWN

REHEARSAL: tuple[Window, ...] = (
    *KNOWN.packages,
    ("transformers", ">=4.51,<5", "mindformers 1.6.0 wants 4.51.3"),
    ("mindpet", "", "mindformers imports it"),
    ("datasets", "", "mindformers imports it"),
)
"""What mindrlhf and mindformers need on a CPU; the checkouts themselves lie on PYTHONPATH."""
REHEARSAL_INSTALL = (
    "python3.11 -m venv DIR"
    " && DIR/bin/pip install mindspore==2.7.0 mindformers==1.6.0 'numpy<2' 'safetensors<0.8'"
)
"""mindformers for what it requires: the checkout, which goes before it, has research/ besides."""


def lacking(plan: Plan, engine: Engine) -> Iterator[Problem]:
    """Checkouts and tokenizer that a rehearsal of an engine lacks."""
    for setting, home in engine.homes(plan.config).items():
        if home is None:
            rule = "is required: a rehearsal executes it"
            yield Problem(setting, None, rule, "give the checkout's directory")
    if tokenizer_directory(plan) is None:
        rule = "is needed with config.json and the tokenizer's files; weights are not"
        remedy = "give model.path=DIR or model.tokenizer_path=DIR"
        yield Problem("model.path", plan.config.model.path, rule, remedy)


def lacking_of_mindformers(plan: Plan, engine: Engine) -> Iterator[Problem]:
    """The same of what stands on mindformers, its interpreter and its place besides."""
    yield from lacking(plan, engine)
    settings = engine.settings(plan.config)
    if settings.container:
        rule = f"a rehearsal starts {engine.name} on this machine, where its replacements lie"
        path = f"{engine.section}.container"
        yield Problem(path, list(settings.container), rule, "rehearse inside, or leave it empty")
    yield from missing_packages(settings.python)


def tokenizer_directory(plan: Plan) -> Path | None:
    """The user's tokenizer: configured, or fetched already; None: it is not here."""
    model = plan.config.model
    for named in (model.tokenizer_path, model.path):
        if named is not None:
            return Path(named) if Path(named).is_dir() else None
    store = Store(Path(plan.config.store))
    fetched = plan.spec("fetch").key
    return store.path(fetched) if store.problem(fetched) is None else None


def missing_packages(python: str | None) -> Iterator[Problem]:
    """What an engine's interpreter lacks."""
    chosen = checks.interpreter(python)
    found = None if chosen is None else checks.versions(chosen, [name for name, *_ in REHEARSAL])
    remedy = f"make one that can rehearse: {REHEARSAL_INSTALL}, then engine.python=DIR/bin/python"
    if chosen is None or found is None:
        yield Problem("engine.python", chosen, "does not answer", remedy)
        return
    lacks = [check for check in checks.packages(REHEARSAL, found.get, chosen) if check.status == "problem"]
    if lacks:
        told = ", ".join(f"{check.name} {check.found}" for check in lacks)
        yield Problem("engine.python", chosen, f"lacks what mindformers stands on: {told}", remedy)
