"""Which artifacts the words behind `push` and `pull` mean."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from pipeline.errors import ConfigError, Problem, RemoteError, StoreError
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.store.remote.copies import ROOM, Copy, find
from pipeline.store.remote.place import Place
from pipeline.store.store import MANIFEST, Key, Manifest, Store
from pipeline.store.verify import artifacts

HEX = re.compile(r"(?:(\w+)[/-])?([0-9a-f]{6,64})")


def copies_of(
    place: Place, keys: Iterable[Key], on_refused: Callable[[RemoteError], None]
) -> dict[Key, list[Copy]]:
    """The whole copies of several artifacts; all are asked for at once.

    Args:
        place: the remote.
        keys: which artifacts.
        on_refused: hears of each of which all copies are refused: one of them makes no other unusable.

    Raises:
        RemoteError: the remote does not answer.
    """
    keys = list(keys)

    def copies(key: Key) -> list[Copy]:
        try:
            return find(place, key)
        except RemoteError as error:
            if error.refused is None:
                raise
            on_refused(error)
            return []

    return dict(zip(keys, place.map(copies, keys), strict=True))


def local_keys(store: Store) -> list[Key]:
    """Every artifact of a store that has a manifest."""
    keys = []
    for path in artifacts(store):
        try:
            keys.append(Key(path.parent.name, Manifest.read(path / MANIFEST).fingerprint))
        except StoreError:  # `grpoflow verify` tells of it
            continue
    return keys


def remote_keys(place: Place) -> list[Key]:
    """Every artifact of which the remote has something, whole or not.

    Raises:
        RemoteError: the remote does not answer.
    """
    stages = sorted(name for name, entry in place.list(ROOM).items() if entry.is_directory)
    named = place.map(lambda stage: place.list(f"{ROOM}/{stage}"), stages)
    pairs = [(stage, name) for stage, names in zip(stages, named, strict=True) for name in names]
    return [Key(stage, name) for stage, name in sorted(pairs) if re.fullmatch(r"[0-9a-f]{64}", name)]


def choose(
    words: Sequence[str], planned: Sequence[Key], runs: Mapping[str, Record], known: Sequence[Key]
) -> list[Key]:
    """The artifacts that words name.

    Args:
        words: a stage of the plan, a run (id, its beginning, name or last), or a fingerprint's beginning.
        planned: what the configuration plans.
        runs: by id, oldest first.
        known: what there is to choose from.

    Raises:
        ConfigError: a word names nothing.
    """
    return list(dict.fromkeys(key for word in words for key in _named(word, planned, runs, known)))


def _named(
    word: str, planned: Sequence[Key], runs: Mapping[str, Record], known: Sequence[Key]
) -> Iterator[Key]:
    keys = [key for key in planned if key.stage == word]
    digits = HEX.fullmatch(word)
    if not keys and digits:
        stage, begin = digits.groups()
        keys = [key for key in known if key.fingerprint.startswith(begin) and stage in (None, key.stage)]
    if not keys:
        try:
            made = history.chosen(runs, word).artifacts.values()
        except ConfigError as error:
            rule = "is no stage of this configuration, no run, and no fingerprint of an artifact there"
            raise ConfigError(
                [Problem("RUN|STAGE|FINGERPRINT", word, rule, error.problems[0].remedy)]
            ) from error
        keys = [key for key in known if str(key) in made]
    yield from keys
