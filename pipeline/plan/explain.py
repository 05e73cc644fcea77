"""Explanation of a plan: the state of each stage, with the reason."""

from __future__ import annotations

import contextlib
import itertools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from rich.console import Console

from pipeline.config.sections import Config
from pipeline.plan import checks, gates
from pipeline.plan.graph import Plan, StageSpec
from pipeline.plan.process import command_line, disk_shortage
from pipeline.store.store import NEVER_RUN, Key, Manifest, Store
from pipeline.terminal import Column, Table, say
from stages.base.identity import identity
from stages.base.keys import flat
from stages.grpo.metrics import read_rows
from stages.models.config import ModelConfig
from stages.models.memory import RoleMemory, shown
from stages.report.text import duration, number

REBUILT = "rebuilt (--force)"
NARROW = 80
"""Width of a terminal, in columns, from which the table shows artifacts and durations."""
INPUT_CHANGED = "input changed: "
MODEL_SIZE = ("hidden_size", "num_hidden_layers", "intermediate_size", "vocab_size")
"""Keys of the model that determine how long a stage takes."""


@dataclass(frozen=True)
class Explanation:
    """Explanation of one stage."""

    stage: str
    state: str
    """CACHED (nothing to do), REMOTE (pulled, or not needed here), RUN, or BLOCKED (it or one of its inputs
    cannot run on this machine now, or a gate failed)."""
    reason: str
    """Why it runs or cannot run; empty if cached."""
    fingerprint: str
    path: str
    cards: int
    command: list[str]
    """Program that would be started, without msrun or Ray."""
    bytes: int | None
    """Bytes that it writes to disk; None: unknown and small."""
    last_duration_s: float | None
    """Duration of the most similar earlier artifact with a model of this size."""
    expected_s: float | None
    """The same, for this stage's number of steps."""
    changed: str = ""
    """Stage upstream that changed first; empty unless this one runs only because of that."""

    @property
    def why(self) -> str:
        """The reason, in two words if it is another stage, whose own row has the cause."""
        return f"{self.changed} changed" if self.changed else self.reason


def explain(
    plan: Plan,
    store: Store,
    remote: Mapping[str, tuple[str, int]] = MappingProxyType({}),
) -> list[Explanation]:
    """Return one row per requested stage, in order.

    `remote` maps a stage that need not be built here to the reason, and the bytes that are pulled.
    """
    rows: list[Explanation] = []
    running: set[str] = set()
    blocked: set[str] = set()
    causes: dict[str, tuple[str, set[str]]] = {}
    """Stage that runs because something changed -> the stage that changed first, and its differences."""
    stopped = "" if _decides_again(plan) else "; ".join(gates.failures(plan, store))
    for spec in plan.requested:
        problem = REBUILT if spec.name in plan.rebuilt else store.problem(spec.key)
        changed = ""
        manifests, written = store.manifests(spec.name), spec.stage.bytes_written
        similar = _most_similar(spec, manifests, plan.config.model)
        if stopped and spec.name in gates.gated(plan):
            state, reason = "BLOCKED", stopped
        elif problem is None:
            state, reason = "CACHED", ""
        elif spec.name in remote:
            state = "REMOTE"
            reason, written = remote[spec.name]
        elif obstacle := _obstacle(spec, store, blocked):
            state, reason = "BLOCKED", obstacle
            blocked.add(spec.name)
        else:
            nearest = _nearest(spec, manifests)
            state, reason = "RUN", _reason(spec, problem, nearest, running)
            changed = _changed(spec, problem, nearest, causes)
        if state in ("RUN", "BLOCKED"):
            running.add(spec.name)
        rows.append(
            Explanation(
                stage=spec.name,
                state=state,
                reason=reason,
                fingerprint=spec.key.fingerprint,
                path=str(store.path(spec.key)),
                cards=spec.stage.workers,
                command=command_line(spec, store),
                bytes=written,
                last_duration_s=None if similar is None else similar.ended - similar.started,
                expected_s=None if similar is None else _expected_s(spec, similar, store),
                changed=changed,
            )
        )
    return rows


def _decides_again(plan: Plan) -> bool:
    """Return True if --force rebuilds an artifact that decides the gates."""
    return not plan.rebuilt.isdisjoint(gates.deciding(plan))


def as_json(
    plan: Plan,
    rows: Sequence[Explanation],
    warnings: Sequence[str] = (),
    memory: Sequence[RoleMemory] = (),
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the plan as JSON data; `notes` come after those of the engine."""
    stages = [asdict(row) for row in rows]
    for stage in stages:
        del stage["changed"]  # `reason` says it
    skipped = {} if plan.target.is_part else plan.skipped
    stages += [{"stage": name, "state": "SKIPPED", "reason": why} for name, why in skipped.items()]
    return {
        "engine": plan.config.engine.name,
        "layout": plan.config.layout.name,
        "cards": plan.cards,
        "store": plan.config.store,
        "target": str(plan.target),
        "stages": stages,
        "memory": [role.to_json() for role in memory],
        "warnings": list(warnings),
        "notes": [*checks.notes(plan.config), *notes],
    }


def show(
    plan: Plan,
    rows: Sequence[Explanation],
    console: Console,
    warnings: Sequence[str] = (),
    memory: Sequence[RoleMemory] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print the plan as a table, with `notes` after those of the engine."""
    config = plan.config
    title = f"{config.model.name} · {config.dataset.name} · {config.engine.name} · "
    title += f"{config.layout.name} on {plan.cards} cards · store {config.store}"
    title += f" · {plan.target}" if plan.target.is_part else ""
    more = (Column("artifact", least=NARROW), Column("last took", least=NARROW))
    table = Table(["stage", "state", Column("why", "text"), *more], title)
    for row in rows:
        elapsed = "" if row.last_duration_s is None else duration(row.last_duration_s)
        table.add(row.stage, row.state, row.why, row.fingerprint[:16], elapsed)
    for name, why in plan.skipped.items() if not plan.target.is_part else ():
        table.add(name, "SKIPPED", why)
    console.print(table)
    unit = "worker" if config.engine.name == "local" else "card"
    for role in memory:
        terms = ", ".join(f"{term.name} {shown(term.low, term.high)}" for term in role.terms)
        say(f"memory per {unit}, {role.role}: {shown(role.low, role.high)} ({terms})")
    for warning in warnings:
        say(f"warning: {warning}")
    for note in (*checks.notes(config), *notes):
        say(f"note: {note}")


def _obstacle(spec: StageSpec, store: Store, blocked: set[str]) -> str | None:
    inputs = [key.stage for key in spec.inputs.values() if key.stage in blocked]
    return f"input blocked: {inputs[0]}" if inputs else disk_shortage(spec, store)


def pace_of(spec: StageSpec, model: ModelConfig) -> tuple[object, ...]:
    """Return what determines a stage's expected duration: equal values have equal durations."""
    return spec.name, steps_of(spec, spec.config), *(getattr(model, key) for key in MODEL_SIZE)


def steps_of(spec: StageSpec, config: Mapping[str, Any]) -> int | None:
    """Return the number of steps of a stage that read `config`; None if it has none or they are unknown."""
    if spec.stage.steps is None:
        return None
    with contextlib.suppress(KeyError, TypeError):
        steps = spec.stage.steps(config)
        return steps if isinstance(steps, int) and steps > 0 else None
    return None


def _most_similar(spec: StageSpec, manifests: Sequence[Manifest], model: ModelConfig) -> Manifest | None:
    size = {key: getattr(model, key) for key in MODEL_SIZE}
    comparable = [made for made in manifests if size.items() <= made.config.get("model", size).items()]
    return _nearest(spec, comparable)


def _expected_s(spec: StageSpec, similar: Manifest, store: Store) -> float:
    """Return the duration of an earlier artifact, with as many steps more or less as this stage takes.

    Each further step takes the median time of the recorded ones. If the earlier stage ended before its last
    step, because it was good enough, this one is expected to end at the same step.
    """
    took_s = similar.ended - similar.started
    steps, earlier = steps_of(spec, spec.config), steps_of(spec, similar.config)
    if steps is None or earlier is None or steps == earlier:
        return took_s
    rows = read_rows(store.path(Key(similar.stage, similar.fingerprint)) / "metrics.jsonl")
    known = [(row["step"], when) for row in rows if (when := number(row.get("time_s"))) is not None]
    pace_s = median_pace(known)
    if pace_s is None:
        return took_s * steps / earlier
    trained: int = known[-1][0]
    expected = min(trained, steps) if trained < earlier else steps
    return max(0.0, took_s + (expected - trained) * pace_s)


def median_pace(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the median seconds per step of points (step, time); None if no step was taken.

    The median ignores checkpoints, and the time between a kill and the next start.
    """
    paces = [
        (t2 - t1) / (s2 - s1) for (s1, t1), (s2, t2) in itertools.pairwise(points) if s2 > s1 and t2 >= t1
    ]
    return float(statistics.median(paces)) if paces else None


def expected_durations(plan: Plan, store: Store, stages: Iterable[str]) -> dict[str, float]:
    """Return the expected seconds of `stages`, as `explain` does, without those that have never run."""
    durations = {}
    for stage in stages:
        spec = plan.spec(stage)
        similar = _most_similar(spec, store.manifests(stage), plan.config.model)
        if similar is not None:
            durations[stage] = round(_expected_s(spec, similar, store), 3)
    return durations


def _nearest(spec: StageSpec, manifests: Sequence[Manifest]) -> Manifest | None:
    """Return the earlier artifact that differs least; of several, the newest."""
    return min(manifests, key=lambda manifest: len(differences(spec, manifest)), default=None)


def _reason(spec: StageSpec, problem: str, nearest: Manifest | None, running: set[str]) -> str:
    if problem != NEVER_RUN or nearest is None:
        return problem
    different = differences(spec, nearest)
    upstream = [key.stage for key in spec.inputs.values() if key.stage in running]
    if not different and upstream:
        return f"{INPUT_CHANGED}{', '.join(dict.fromkeys(upstream))}"
    more = f" and {len(different) - 3} more" if len(different) > 3 else ""
    return "; ".join(different[:3]) + more or problem


def _changed(
    spec: StageSpec,
    problem: str,
    nearest: Manifest | None,
    causes: dict[str, tuple[str, set[str]]],
) -> str:
    """Return the stage that a stage runs for, or "" if it has a cause of its own; add it to `causes`.

    A difference that an earlier stage has, too, is that stage's.
    """
    upstream = next((causes[key.stage] for key in spec.inputs.values() if key.stage in causes), None)
    if problem == REBUILT:
        own = {problem} if upstream is None or problem not in upstream[1] else set()
    elif problem != NEVER_RUN or nearest is None:
        return ""
    else:
        own = {text for text in differences(spec, nearest) if not text.startswith(INPUT_CHANGED)}
        own -= set() if upstream is None else upstream[1]
    if upstream is None or own:
        causes[spec.name] = spec.name, own | (set() if upstream is None else upstream[1])
        return ""
    causes[spec.name] = upstream
    return upstream[0]


def differences(spec: StageSpec, manifest: Manifest) -> list[str]:
    """Return the differences between a stage and an earlier artifact, the most important first."""
    changes = (
        [f"code version {manifest.code_version} → {spec.version}"]
        if manifest.code_version != spec.version
        else []
    )
    old, new = flat(identity(Config, manifest.config)), flat(identity(Config, spec.config))
    changes += [
        f"{key} {old.get(key, 'unset')} → {new.get(key, 'unset')}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    ]
    if sorted(manifest.external.values()) != sorted(spec.external.values()):
        changes.append("external file changed")
    packages = spec.stage.user_code.packages if spec.stage.user_code is not None else {}
    changes += [
        f"package {name} {manifest.versions.get(name, 'unset')} → {version}"
        for name, version in packages.items()
        if manifest.versions.get(name) != version
    ]
    for name, key in spec.inputs.items():
        if manifest.inputs.get(name) != key.fingerprint:
            changes.append(f"{INPUT_CHANGED}{name}")
    return changes
