"""Checkpoints of grpo with engine=local from which a planned run can continue.

A stage resumes by itself from checkpoints of an interrupted attempt at the same artifact. After a change, for
example of a reward function or of train.steps, the artifact is another one: train.resume_from names the
checkpoint then.
"""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.config.grammar import word
from pipeline.config.sections import Config
from pipeline.errors import InputError
from pipeline.plan.graph import Plan, StageSpec
from pipeline.plan.process import SPEC
from pipeline.store.attempt import FINAL_CHECKPOINTS, find_all, is_held
from pipeline.store.store import Store
from stages.base.files import read_object
from stages.base.identity import identity
from stages.base.keys import flat
from stages.grpo.checkpoint import CHECKPOINTS, FINAL, STATE, flaw, read_state
from stages.grpo.rules import check_resumed

STAGE, ENGINE = "grpo", "local"
MOST_DIFFERENCES = 3
MOST_ATTEMPTS = 200
"""Attempts that are examined, the latest ones."""
PLAIN = re.compile(r"[\w./+-]+", re.ASCII)
"""Paths that neither Hydra nor a shell needs quotes for."""
ROLE_INPUTS = ("strategy", "weights")
"""Inputs that differ between layouts; a checkpoint can be read in any layout."""


@dataclass(frozen=True)
class Checkpoint:
    """Complete checkpoint of an attempt that no process is working on."""

    path: Path
    step: int
    attempt: str
    """STAGE-DIGITS of the attempt."""

    @property
    def override(self) -> str:
        """Override that continues from it, for a shell."""
        text = str(self.path)
        return shlex.quote(f"train.resume_from={text if PLAIN.fullmatch(text) else word(text)}")


def notes(plan: Plan, store: Store) -> list[str]:
    """Return a note about the checkpoint from which grpo resumes or can continue, if there is one."""
    spec = next((spec for spec in plan.missing(store) if spec.name == STAGE), None)
    if spec is None or plan.config.engine.name != ENGINE:
        return []
    own = newest(store, str(spec.key))
    if own is not None:
        return [f"grpo resumes after step {own.step} of its interrupted attempt"]
    if plan.config.train.resume_from is not None:
        return []
    best, different = next(_usable(plan, spec, store), (None, []))
    if best is None:
        return []
    differing = ", ".join(different[:MOST_DIFFERENCES]) or "only in files, for example of a reward function"
    differing += f" and {len(different) - MOST_DIFFERENCES} more" if len(different) > MOST_DIFFERENCES else ""
    name = f"checkpoint {best.path.name} of attempt {best.attempt}"
    return [f"{name} can be used instead of starting at step 1: {best.override} (differs: {differing})"]


def newest(store: Store, artifact: str) -> Checkpoint | None:
    """Return the newest undamaged checkpoint of unfinished attempts at STAGE/DIGITS."""
    found = [
        checkpoint
        for work in find_all(store.root, artifact)
        if not is_held(work)
        for checkpoint in _checkpoints(work / CHECKPOINTS)
    ]
    return max(found, key=lambda checkpoint: checkpoint.step, default=None)


def after_failure(store: Store, spec: StageSpec) -> str | None:
    """Return how to use the checkpoints that a failed attempt has left; None if there are none."""
    found = newest(store, str(spec.key)) if spec.name == STAGE and spec.stage.program is None else None
    if found is None:
        return None
    same = f"checkpoint {found.path.name} is kept: the same command resumes from it"
    return f"{same}, and after a change of configuration or reward {found.override}"


def _usable(plan: Plan, spec: StageSpec, store: Store) -> Iterator[tuple[Checkpoint, list[str]]]:
    """Yield checkpoints of other runs with the same model and data and the keys that differ, newest first."""
    roots = [*store.root.glob(f".work/{STAGE}-*/{CHECKPOINTS}"), *store.root.glob(f".work/{STAGE}-*/{FINAL}")]
    roots = [root for root in roots if not is_held(root.parent)]
    newest_first = sorted(
        [*roots, *store.root.glob(f"{FINAL_CHECKPOINTS}/{STAGE}-*")], key=_changed, reverse=True
    )
    for directory in newest_first[:MOST_ATTEMPTS]:
        with contextlib.suppress(InputError, AttributeError, LookupError, TypeError, ValueError, OSError):
            # its log or the checkpoint may have been removed
            made = read_object(store.root / ".logs" / _attempt_of(directory) / SPEC)
            different = _differences(spec, made)
            if not _has_same_data(spec, made, different):
                continue
            for checkpoint in sorted(_checkpoints(directory), key=lambda each: each.step, reverse=True):
                if not list(check_resumed(plan.config.train, read_state(checkpoint.path))):
                    yield checkpoint, different


def _changed(directory: Path) -> float:
    """Return the time of the last change of a directory's entries; 0 if it was removed."""
    try:
        return directory.stat().st_mtime
    except OSError:
        return 0.0


def _has_same_data(spec: StageSpec, made: dict[str, Any], different: list[str]) -> bool:
    """Return True if an attempt has the model, seed and inputs of a stage, perhaps in another layout."""
    inputs = {name: "/".join(Path(path).parts[-2:]) for name, path in made["inputs"].items()}
    free = ROLE_INPUTS if any(name.startswith("layout") for name in different) else ()
    is_same = all(inputs.get(name) == str(key) for name, key in spec.inputs.items() if name not in free)
    return is_same and not any(name.startswith(("model.", "seed ")) for name in different)


def _attempt_of(directory: Path) -> str:
    """Return STAGE-DIGITS, perhaps with the suffix of a slot, for a directory of checkpoints."""
    return directory.name if directory.parent.name == FINAL_CHECKPOINTS else directory.parent.name


def _checkpoints(directory: Path) -> Iterator[Checkpoint]:
    """Yield the complete checkpoints in a directory whose files have the right sizes."""
    for state in directory.glob(f"step_*/{STATE}"):
        path = state.parent
        if path.name[5:].isdecimal() and flaw(path, deep=False) is None:
            yield Checkpoint(path, int(path.name[5:]), _attempt_of(directory))


def _differences(spec: StageSpec, made: dict[str, Any]) -> list[str]:
    """Return the fingerprinted keys that differ from those of an attempt's spec.json, with both values."""
    old, new = (flat(identity(Config, values)) for values in (made["config"], spec.config))
    return [
        f"{key} {old.get(key, 'unset')} → {new.get(key, 'unset')}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
