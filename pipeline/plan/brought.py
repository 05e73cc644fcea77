"""Artifacts brought along from elsewhere: which stage of a plan each one is, and into the store with it."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from pipeline.errors import ConfigError, Problem, StoreError
from pipeline.plan.explain import differences
from pipeline.plan.graph import Plan, StageSpec, anew
from pipeline.store import brought
from pipeline.store.store import DIGITS, MANIFEST, Manifest, Store

EDITIONS = 100
"""How often built anew an artifact is still known as a plan's."""


def fitting(plans: Sequence[Plan], directories: Sequence[Path], deep: bool = False) -> dict[Path, StageSpec]:
    """The stage that each directory holds the artifact of, by its manifest.

    Args:
        plans: what would run; a sweep has several.
        directories: committed artifacts, of another store.
        deep: compare every file's digest, not only sizes and small files.

    Raises:
        ConfigError: one is damaged, or no stage's that is asked for.
    """
    fits, problems = {}, []
    specs = {spec.key: spec for plan in plans for spec in plan.asked}
    for directory in directories:
        try:
            manifest = Manifest.read(directory / MANIFEST)
        except StoreError as error:
            remedy = "give a directory STORE/STAGE/FINGERPRINT of a store"
            problems.append(Problem("--from", str(directory), f"is no artifact: {error}", remedy))
            continue
        alike = [spec for spec in specs.values() if spec.key == brought.key(manifest)]
        damage = brought.damage_of(directory, manifest, deep)
        if damage is not None:
            problems.append(Problem("--from", str(directory), f"is damaged: {damage}", "copy it again"))
        elif not alike:
            problems.append(_stranger(directory, manifest, list(specs.values())))
        else:
            fits[directory] = alike[0]
    if problems:
        raise ConfigError(problems)
    return fits


def take_in(store: Store, plans: Sequence[Plan], directories: Sequence[Path]) -> Iterator[str]:
    """Commit what was brought along; yields what became of each.

    Raises:
        ConfigError: as `fitting`; then nothing is taken.
        StoreError: the store cannot be written.
    """
    for directory, spec in fitting(plans, directories, deep=True).items():
        taken = brought.take_in(store, directory, spec.key)
        yield f"{spec.name}: {f'taken from {directory}' if taken else 'is in the store already'}"


def _stranger(directory: Path, manifest: Manifest, specs: Sequence[StageSpec]) -> Problem:
    """Why an artifact is none of the plan's."""
    brings = f"is {manifest.stage} {manifest.fingerprint[:DIGITS]}"
    same = [spec for spec in specs if spec.name == manifest.stage]
    if not same:
        names = ", ".join(dict.fromkeys(spec.name for spec in specs))
        return Problem("--from", str(directory), f"{brings}, which is not asked for", f"asked for: {names}")
    nearest = min(same, key=lambda spec: len(differences(spec, manifest)))
    wanted = nearest.key.fingerprint[:DIGITS]
    first = nearest.first or nearest.key
    if any(anew(first, number).fingerprint == manifest.fingerprint for number in range(EDITIONS)):
        rule = (
            f"{brings}, this plan's configuration built anew (--force) there; this plan takes {wanted} alone"
        )
        other = directory.resolve().parent / wanted
        remedy = f"give {other}" if (other / MANIFEST).is_file() else "build it here: leave this --from out"
        return Problem("--from", str(directory), rule, remedy)
    why = "; ".join(differences(nearest, manifest)[:3]) or "a label differs"
    rule = f"{brings}, and this plan's is {wanted} ({why})"
    return Problem("--from", str(directory), rule, "type the configuration that it was made with")
