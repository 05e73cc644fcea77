"""`grpoflow rehearse`: a run of an external engine's code on the CPU, with a small model."""

import json
import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline import rehearsal
from pipeline.cli.command import Commands, add_json
from pipeline.errors import REPORTED, ConfigError, Exit
from pipeline.plan.graph import Plan
from pipeline.rehearsal import report
from pipeline.rehearsal.scratch import Scratch
from pipeline.run.run import prepare_plan
from pipeline.terminal import as_json
from stages.engines.rehearsal import Proof


def register(commands: Commands) -> None:
    """Add `rehearse`."""
    parser = commands.add(
        "rehearse",
        rehearse,
        "run an external engine's checkouts on this machine's CPU, with a shrunk model",
        "experiment=mindrlhf_7b model.path=HF_DIR dataset.path=DIR engine.mindrlhf_home=CHECKOUT \\\n"
        "      engine.mindformers_home=CHECKOUT engine.python=PYTHON   # HF_DIR needs no weights",
    )
    add_json(parser, "the proofs with their results")


def rehearse(options: Namespace) -> int:
    """Rehearse a run.

    Raises:
        ConfigError: the configuration is invalid, or cannot be rehearsed on this machine.
    """
    began = time.monotonic()
    plan, store = prepare_plan(options.overrides, options.config_dir, weights=False)
    parts = rehearsal.of(plan.config)
    refused = [problem for part in parts.values() for problem in part.refusals(plan)]
    if refused:
        raise ConfigError(refused)
    store.open()
    directory = report.directory(store, plan.spec("grpo").key)
    with report.exclusive(directory):
        scratch = directory / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        (directory / report.REPORT).unlink(missing_ok=True)
        proofs = []
        for proof in _proofs(parts, plan, scratch):
            _print_progress(f"{proof.state}: {proof.what}: {proof.told}")
            proofs.append(proof)
        page = report.write(directory, proofs, options.overrides, time.monotonic() - began)
        passed = report.has_passed(proofs)
        if passed:
            shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        print(as_json(json.loads((directory / report.REPORT).read_text(encoding="utf-8"))))
        return Exit.DONE if passed else Exit.FAILED
    report.show(proofs)
    if not passed:
        print(f"what it left, with the logs: {scratch}")
    print(report.last_line(proofs, page), flush=True)
    return Exit.DONE if passed else Exit.FAILED


def _proofs(parts: Mapping[str, rehearsal.Rehearsal], plan: Plan, scratch: Path) -> Iterator[Proof]:
    """Rehearse all engines, each in its own directory, and yield their proofs; stop after a failure."""
    for name, part in parts.items():
        directory = scratch / name
        directory.mkdir(parents=True, exist_ok=True)
        try:
            yield from part.rehearse(plan, Scratch(directory))
        except REPORTED as error:
            yield Proof("it runs to the end", "failed", str(error))
            return


def _print_progress(text: str) -> None:
    print(f"rehearsal: {text}", file=sys.stderr, flush=True)
