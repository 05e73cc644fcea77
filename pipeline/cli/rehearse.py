"""`grpoflow rehearse`: a run of an external engine's code on the CPU, with a small model."""

import shutil
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pipeline import rehearsal
from pipeline.cli.command import Commands, add_json
from pipeline.errors import REPORTED, ConfigError, Exit, StoreError, store_errors
from pipeline.plan.graph import Plan
from pipeline.rehearsal.scratch import Scratch
from pipeline.run.run import prepare_plan
from pipeline.store.leases import AlreadyLocked, locked
from pipeline.store.store import DIGITS
from pipeline.terminal import Column, Table, as_json, console, say
from stages.engines.rehearsal import Proof

REPORT = "report.json"


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
    """Rehearse a run; raise ConfigError if it cannot be rehearsed on this machine."""
    began = time.monotonic()
    plan, store = prepare_plan(options.overrides, options.config_dir, weights=False)
    parts = rehearsal.of(plan.config)
    refused = [problem for part in parts.values() for problem in part.refusals(plan)]
    if refused:
        raise ConfigError(refused)
    store.open()
    directory = store.root / ".rehearsals" / plan.spec("grpo").key.fingerprint[:DIGITS]
    try:
        lock = locked(directory / "lock", directory, wait=False)
    except AlreadyLocked:
        message = f"{directory}: is being rehearsed by another process; wait until it has ended"
        raise StoreError(message) from None
    with lock:
        scratch = directory / "scratch"
        shutil.rmtree(scratch, ignore_errors=True)
        (directory / REPORT).unlink(missing_ok=True)
        proofs = []
        for proof in _proofs(parts, plan, scratch):
            say(f"rehearsal: {proof.state}: {proof.what}: {proof.told}", stderr=True)
            proofs.append(proof)
        passed = has_passed(proofs)
        result = {
            "passed": passed,
            "overrides": list(options.overrides),
            "at": time.time(),
            "took_s": round(time.monotonic() - began, 1),
            "proofs": [asdict(proof) for proof in proofs],
        }
        with store_errors(directory):
            (directory / REPORT).write_text(as_json(result) + "\n", encoding="ascii")
        if passed:
            shutil.rmtree(scratch, ignore_errors=True)
    if options.json:
        print(as_json(result))
    else:
        _show(proofs, scratch)
        counts = Counter(proof.state for proof in proofs)
        numbers = " ".join(f"{state}={counts[state]}" for state in ("proven", "failed", "unproven"))
        word = "passed" if passed else "failed"
        print(f"rehearsal {word} {numbers} report={directory / REPORT}", flush=True)
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


def has_passed(proofs: Sequence[Proof]) -> bool:
    """Return True if something was proven and nothing failed."""
    states = {proof.state for proof in proofs}
    return "proven" in states and "failed" not in states


def _show(proofs: Sequence[Proof], scratch: Path) -> None:
    """Print the table, and the directory of a failed rehearsal."""
    table = Table([Column("what", "text"), "", Column("seen", "text")])
    for proof in proofs:
        table.add(proof.what, proof.state, proof.told)
    console().print(table)
    if not has_passed(proofs):
        say(f"what it left, with the logs: {scratch}")
