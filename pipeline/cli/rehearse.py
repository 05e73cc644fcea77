"""`grpoflow rehearse`."""

import shutil
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline import rehearsal
from pipeline.cli.command import Commands
from pipeline.errors import REPORTED, ConfigError, Exit, Problem
from pipeline.plan import rehearsed
from pipeline.plan.graph import Plan
from pipeline.rehearsal import report
from pipeline.run import signals
from pipeline.run.run import prepare_plan
from pipeline.store import rehearsals
from stages.engines.rehearsal import Proof


def register(commands: Commands) -> None:
    """Add `rehearse`."""
    parser = commands.add(
        "rehearse",
        rehearse,
        "execute an outside engine's own checkouts on this machine's CPU, with the model shrunk",
        "experiment=mindrlhf_7b model.path=HF_DIR dataset.path=DIR engine.mindrlhf_home=CHECKOUT \\\n"
        "      engine.mindformers_home=CHECKOUT engine.python=PYTHON   # HF_DIR needs no weights",
        "… --keep DIR",
    )
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="rehearse in this empty directory, and leave it"
    )
    parser.add_argument("--json", action="store_true", help="for programs: each proof and what it saw")


def rehearse(options: Namespace) -> int:
    """Rehearse a run.

    Raises:
        ConfigError: plan refuses it, or it cannot be rehearsed here.
    """
    signals.install()
    began = time.monotonic()
    plan, store = prepare_plan(options.overrides, options.config_dir, weights=False)
    parts = rehearsal.of(plan.config)
    refused = [problem for part in parts.values() for problem in part.refusals(plan)]
    if refused:
        raise ConfigError(refused)
    store.open()
    place = rehearsals.directory(store, rehearsed.fingerprint(plan))
    with rehearsals.alone(place):
        scratch = _empty(options.keep, place / rehearsals.SCRATCH)
        (place / rehearsals.REPORT).unlink(missing_ok=True)
        proofs = []
        for proof in _proofs(parts, plan, scratch):
            _tell(f"{proof.state}: {proof.what}: {proof.told}")
            proofs.append(proof)
        page = report.write(place, proofs, options.overrides, time.monotonic() - began)
        passed = report.has_passed(proofs)
        if passed and options.keep is None:
            shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        print((place / rehearsals.REPORT).read_text(encoding="utf-8"), end="")
        return Exit.DONE if passed else Exit.FAILED
    report.show(proofs)
    if not passed:
        print(f"what it left, with the logs: {scratch}")
    print(report.last_line(proofs, page), flush=True)
    return Exit.DONE if passed else Exit.FAILED


def _proofs(parts: Mapping[str, rehearsal.Rehearsal], plan: Plan, scratch: Path) -> Iterator[Proof]:
    """Of all parts, each in a directory of its own, until one ends badly."""
    for name, part in parts.items():
        directory = scratch / name
        directory.mkdir(parents=True, exist_ok=True)
        try:
            yield from part.rehearse(plan, directory, _tell)
        except REPORTED as error:
            yield Proof("it runs to the end", "failed", str(error))
            return


def _empty(wanted: Path | None, default: Path) -> Path:
    """The directory to rehearse in.

    Raises:
        ConfigError: --keep names one that holds something.
    """
    if wanted is not None and wanted.exists() and (not wanted.is_dir() or any(wanted.iterdir())):
        rule = "must be a new or an empty directory"
        raise ConfigError([Problem("--keep", str(wanted), rule, "name another one")])
    if wanted is None:
        shutil.rmtree(default, ignore_errors=True)
    return (wanted or default).absolute()


def _tell(text: str) -> None:
    print(f"rehearsal: {text}", file=sys.stderr, flush=True)
