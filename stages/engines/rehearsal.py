"""What rehearsals of every engine share: proofs, places of upstream, variables of their processes."""

import ast
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from stages.base.errors import Problem
from stages.base.layout import ROLES

State = Literal["proven", "failed", "unproven"]
VARIABLE = "GRPOFLOW_REHEARSAL"
"""Variable without which a rehearsal's directories on PYTHONPATH have no effect."""


@dataclass(frozen=True)
class Proof:
    """One thing that a run relies on."""

    what: str
    """Claim to prove, in a few words."""
    state: State
    """proven: it was seen; failed: it was seen not to hold; unproven: this machine cannot show it."""
    told: str
    """Observation with figures; the likely cause of a failure; the reason why something is unproven."""


@dataclass(frozen=True)
class SourceLocation:
    """Words of a checkout that a rehearsal replaces, or stands on.

    Whoever edits a checkout, or takes another commit, may move them. A replacement that misses its place
    would leave a rehearsal that proves something else than it says: so it is refused.
    """

    file: str
    within: str
    """Qualified name of the class or function that must hold them; empty: the module."""
    words: str
    why: str
    """Replacement that depends on it."""
    lines: Mapping[str, int | None]
    """Commit -> line, as it was read; None: it has no such place. What is checked survives a shifted line."""


def moved(home: Path, setting: str, locations: Sequence[SourceLocation], version: str) -> Iterator[Problem]:
    """Places that are not where a rehearsal needs them."""
    for location in locations:
        file = home / location.file
        if location.lines.get(version) and (missing := _missing(file, location)):
            name = f"{location.within or 'the module'}: {location.words}"
            where = f"{location.why}; {version}:{location.lines[version]}"
            rule = f"{file}: {missing}; a rehearsal stands on it ({where})"
            remedy = f"rehearse with an unedited checkout; or see what became of `{name}`"
            yield Problem(setting, str(home), rule, remedy)


def _missing(file: Path, location: SourceLocation) -> str:
    """Return what is missing in a file; an empty string if nothing is."""
    try:
        source = file.read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, SyntaxError, UnicodeDecodeError) as error:
        return f"cannot be read ({error})"
    node: ast.AST = tree
    for name in filter(None, location.within.split(".")):
        definitions = [child for child in ast.iter_child_nodes(node) if getattr(child, "name", None) == name]
        if not definitions:
            return f"has no {location.within}"
        node = definitions[0]
    text = source if node is tree else ast.get_source_segment(source, node) or ""
    return "" if location.words in text else f"{location.within or 'it'} has no `{location.words.strip()}`"


def environment(on_path: Path, variables: Mapping[str, str], **more: str) -> dict[str, str]:
    """Return engine.env of a rehearsal."""
    path = [str(on_path), *filter(None, [variables.get("PYTHONPATH")])]
    return {**variables, "PYTHONPATH": os.pathsep.join(path), **more}


def complete_layout(layout: Mapping[str, Any], workers: int) -> dict[str, Any]:
    """Every role dpN: a CPU cuts no tensor."""
    degrees = dict.fromkeys(
        ("model_parallel", "pipeline_stage", "context_parallel", "expert_parallel", "micro_batch_num"), 1
    )
    roles: dict[str, Any] = {
        role: {**layout[role], **degrees, "data_parallel": workers, "offset": ()} for role in ROLES
    }
    return {**layout, **roles, "name": f"dp{workers}_mp1_pp1"}


def on_this_machine(settings: dict[str, Any]) -> None:
    """Leave out files that a program's settings source on a card's machine."""
    settings["env_scripts"] = tuple(file for file in settings["env_scripts"] if Path(file).exists())
