"""Stages that --force rebuilds: which artifacts they replace, and notes about unfinished rebuilds."""

import functools
from collections.abc import Collection
from pathlib import Path

from pipeline.plan.graph import Plan, downstream
from pipeline.store.store import Key, Store


@functools.cache
def manifest_digest(root: Path, key: Key) -> str | None:
    """Return the manifest digest of an artifact that --force rebuilds, as of this process's first request.

    Points of a sweep share it, so each artifact is rebuilt once per process.
    """
    return Store(root).manifest_digest(key)


def outdated_note(plan: Plan, store: Store, replaced: Collection[str]) -> str | None:
    """Return which stages still have artifacts that were built from replaced ones; None if there are none."""
    names = downstream(plan.target.force, plan.graph) - set(replaced)
    outdated = [spec.name for spec in plan.specs if spec.name in names and store.problem(spec.key) is None]
    if not outdated:
        return None
    text = f"{', '.join(outdated)}: built from the replaced artifact of {', '.join(plan.target.force)}"
    return f"{text}; rebuild with --force {outdated[0]}"
