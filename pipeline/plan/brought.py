"""Artifacts brought along from elsewhere: which stage of a plan each one is, and into the store with it."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pipeline.errors import ConfigError, Problem, StoreError
from pipeline.plan.explain import differences
from pipeline.plan.graph import Plan, StageSpec, anew
from pipeline.store.attempt import attempt
from pipeline.store.durable import damage, unreadable
from pipeline.store.store import DIGITS, MANIFEST, Key, Manifest, Store
from stages.base.clone import clone

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
        alike = [spec for spec in specs.values() if spec.key == _key(manifest)]
        damage = _damage(directory, manifest, deep)
        if damage is not None:
            problems.append(Problem("--from", str(directory), f"is damaged: {damage}", "copy it again"))
        elif not alike:
            known = {spec.key: spec for plan in plans for spec in plan.specs}
            problems.append(_stranger(directory, manifest, list(specs.values()), known))
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
        taken = _commit(store, directory, spec.key)
        yield f"{spec.name}: {f'taken from {directory}' if taken else 'is in the store already'}"


def _stranger(
    directory: Path, manifest: Manifest, specs: Sequence[StageSpec], known: Mapping[Key, StageSpec]
) -> Problem:
    """Why an artifact is none of the plan's."""
    brings = f"is {manifest.stage} {manifest.fingerprint[:DIGITS]}"
    same = [spec for spec in specs if spec.name == manifest.stage]
    if not same:
        names = ", ".join(dict.fromkeys(spec.name for spec in specs))
        return Problem("--from", str(directory), f"{brings}, which is not asked for", f"asked for: {names}")
    nearest = min(same, key=lambda spec: len(differences(spec, manifest)))
    wanted = nearest.key.fingerprint[:DIGITS]
    place = directory.resolve().parent
    above = _built_anew(nearest, manifest, place.parent, known)
    if above is None:
        why = "; ".join(differences(nearest, manifest)[:3]) or "a label differs"
        rule = f"{brings}, and this plan's is {wanted} ({why})"
        return Problem("--from", str(directory), rule, "type the configuration that it was made with")
    source = "this plan's configuration" if above is nearest else f"made from {above.name}, which was"
    rule = f"{brings}, {source} built anew (--force) there; this plan takes {wanted} alone"
    other = place / wanted
    remedy = f"give {other}" if (other / MANIFEST).is_file() else "build it here: leave this --from out"
    return Problem("--from", str(directory), rule, remedy)


def _built_anew(
    spec: StageSpec, manifest: Manifest, store: Path, known: Mapping[Key, StageSpec]
) -> StageSpec | None:
    """Which stage of a plan an artifact of another store, or what it was made from, is another edition of."""
    first = spec.first or spec.key
    if any(anew(first, number).fingerprint == manifest.fingerprint for number in range(EDITIONS)):
        return spec
    for name, key in spec.inputs.items():
        there = Key(key.stage, manifest.inputs.get(name, ""))
        with contextlib.suppress(StoreError):  # it may lie there no more
            source = Manifest.read(store / str(there) / MANIFEST)
            if there != key and (above := _built_anew(known[key], source, store, known)) is not None:
                return above
    return None


def _key(manifest: Manifest) -> Key:
    """Which artifact a manifest is of."""
    return Key(manifest.stage, manifest.fingerprint)


def _damage(directory: Path, manifest: Manifest, deep: bool) -> str | None:
    """How the files of `directory` differ from its manifest, if they do."""
    try:
        found = (damage(directory, name, entry, deep) for name, entry in manifest.files.items())
        return next((problem for problem in found if problem is not None), None)
    except OSError as error:
        return unreadable(error, directory)


def _commit(store: Store, directory: Path, wanted: Key) -> bool:
    """Copy a committed artifact, and what its manifest says of its making, into `store`.

    Returns:
        False when the store has a whole one already.

    Raises:
        StoreError: it is damaged or another one, or the store cannot be written; nothing is committed then.
    """
    store.open()
    with store.lock(wanted):
        if store.problem(wanted) is None:
            return False
        with attempt(store, wanted) as seat:
            manifest = Manifest.read(directory / MANIFEST)
            try:
                for name in manifest.files:
                    target = seat.staging / name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    clone(directory / name, target)
            except OSError as error:
                raise StoreError.of(error, directory) from error
            problem = _damage(seat.staging, manifest, deep=True)
            if problem is not None or _key(manifest) != wanted:
                raise StoreError(f"{directory}: was changed while it was copied: {problem or _key(manifest)}")
            store.commit(seat.staging, replace(manifest, files={}))
            seat.done()
    return True
