"""Verification that committed artifacts and checkpoints are undamaged.

It checks every artifact in the store, not those of one plan, so it also finds damage upstream of a cached
report.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pipeline.errors import StoreError
from pipeline.store.attempt import FINAL_CHECKPOINTS, is_held
from pipeline.store.store import DIGITS, MANIFEST, Key, Manifest, Store, manifest_damage
from stages.grpo.checkpoint import CHECKPOINTS, STATE, flaw

ARTIFACT = re.compile(rf"[0-9a-f]{{{DIGITS}}}")


@dataclass(frozen=True)
class Damage:
    """Artifact or checkpoint that is damaged, or that cannot be read."""

    path: Path
    problem: str
    is_damaged: bool = True
    """False if it cannot be read for a reason that says nothing about its content, such as permissions."""


def verify(
    store: Store, deep: bool, on_artifact: Callable[[Path], None] = lambda path: None
) -> Iterator[Damage]:
    """Yield the findings about all artifacts, then those about checkpoints.

    With `deep` the digests of all files are compared; otherwise sizes, and digests of small files.
    """
    for path in artifacts(store):
        on_artifact(path)
        try:
            problem = _problem(store, path, deep)
        except StoreError as error:
            yield Damage(path, str(error), is_damaged=False)
            continue
        if problem is not None:
            yield Damage(path, problem)
    for path in checkpoints(store):
        on_artifact(path)
        problem = flaw(path, deep)
        if problem is not None and (path / STATE).exists():  # otherwise a trainer has just removed it
            yield Damage(path, f"checkpoint damaged: {problem}")


def artifacts(store: Store) -> list[Path]:
    """Return all directories at the paths of committed artifacts."""
    return sorted(
        path
        for stage in (store.root.iterdir() if store.root.is_dir() else ())
        if stage.is_dir() and not stage.name.startswith(".")
        for path in stage.iterdir()
        if ARTIFACT.fullmatch(path.name)
    )


def checkpoints(store: Store) -> list[Path]:
    """Return complete checkpoints of engine=local's trainer that no running attempt writes."""
    states = sorted((store.root / ".work").glob(f"*/{CHECKPOINTS}/step_*/{STATE}"))
    running = {work for work in {state.parents[2] for state in states} if is_held(work)}
    kept = sorted(store.root.glob(f"{FINAL_CHECKPOINTS}/*/step_*/{STATE}"))
    return [state.parent for state in (*states, *kept) if state.parents[2] not in running]


def quarantine(store: Store, finding: Damage) -> Path | None:
    """Move damage to quarantine; the next run rebuilds it or resumes from an earlier checkpoint."""
    if finding.path.parents[1].name == FINAL_CHECKPOINTS:
        return store.quarantine_path(finding.path, f"{finding.path.parent.name}-{finding.path.name}")
    if finding.path.parent.name == CHECKPOINTS:
        return store.quarantine_path(finding.path, f"{finding.path.parents[1].name}-{finding.path.name}")
    return store.quarantine(Key(finding.path.parent.name, finding.path.name))


def _problem(store: Store, path: Path, deep: bool) -> str | None:
    """Return what is wrong with an artifact, or None; raise StoreError if it cannot be read."""
    try:
        manifest = Manifest.read(path / MANIFEST)
    except StoreError as error:
        return manifest_damage(error, path)
    if not manifest.fingerprint.startswith(path.name):
        return f"manifest corrupt: {path / MANIFEST} is of {manifest.fingerprint[:DIGITS]}"
    problem = store.problem(Key(path.parent.name, manifest.fingerprint), deep)
    if problem is not None:
        return problem
    listed = {MANIFEST, *manifest.files}
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if not (file.is_dir() and not file.is_symlink()) and name not in listed:
            return f"unlisted file: {name}"
    return None
