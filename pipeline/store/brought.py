"""An artifact of another store, committed in this one: verified, copied, verified again."""

from dataclasses import replace
from pathlib import Path

from pipeline.errors import StoreError
from pipeline.store.attempt import attempt
from pipeline.store.durable import damage, unreadable
from pipeline.store.store import MANIFEST, Key, Manifest, Store
from stages.base.clone import clone


def key(manifest: Manifest) -> Key:
    """Which artifact a manifest is of."""
    return Key(manifest.stage, manifest.fingerprint)


def damage_of(directory: Path, manifest: Manifest, deep: bool) -> str | None:
    """How the files of `directory` differ from its manifest, if they do."""
    try:
        found = (damage(directory, name, entry, deep) for name, entry in manifest.files.items())
        return next((problem for problem in found if problem is not None), None)
    except OSError as error:
        return unreadable(error, directory)


def take_in(store: Store, directory: Path, wanted: Key) -> bool:
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
            problem = damage_of(seat.staging, manifest, deep=True)
            if problem is not None or key(manifest) != wanted:
                raise StoreError(f"{directory}: was changed while it was copied: {problem or key(manifest)}")
            store.commit(seat.staging, replace(manifest, files={}))
            seat.done()
    return True
