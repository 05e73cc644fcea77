"""`grpoflow plan`: the stages that a run would execute, with the reasons."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from launch.machine import environment
from pipeline import engines
from pipeline.cli.command import Commands, add_json, add_target, target_of
from pipeline.errors import Exit, RemoteError
from pipeline.plan import cautions, explain
from pipeline.plan.graph import Plan
from pipeline.run.run import prepare_plan
from pipeline.store.store import Store
from pipeline.terminal import as_json, console

if TYPE_CHECKING:
    from pipeline.plan.shared import Shared


def register(commands: Commands) -> None:
    """Add `plan`."""
    parser = commands.add(
        "plan",
        plan,
        "show what a run would do and why, without starting it (exit 10: work pending)",
        "train.beta=0.02",
        "--until split",
    )
    add_target(parser)
    add_json(parser)


def plan(options: Namespace) -> int:
    """Show what a run would do, and why."""
    planned, store = prepare_plan(options.overrides, options.config_dir, target=target_of(options))
    shared = _look(planned, store)
    is_done = not planned.rebuilt and all(store.problem(spec.key) is None for spec in planned.requested)
    rows = explain.explain(planned, store, () if is_done else environment.problems(), shared)
    roles = engines.get(planned.config.engine.name).memory(planned.config)
    warnings = cautions.warnings(planned, store, roles)
    if options.json:
        print(as_json(explain.as_json(planned, rows, warnings, roles)))
    else:
        explain.show(planned, rows, console(), warnings, roles)
    return Exit.PENDING if any(map(_is_pending, rows)) else Exit.DONE


def _is_pending(row: explain.Row) -> bool:
    """Return True if a run would have to build or download the artifact."""
    return row.state in ("RUN", "BLOCKED") or (row.state == "REMOTE" and bool(row.bytes))


def _look(planned: Plan, store: Store) -> Shared | None:
    """Return the plan's artifacts on the remote; print a warning and return None if it does not respond."""
    if not planned.config.remote.url:
        return None
    from pipeline.plan.shared import look, open_remote, warn

    remote = open_remote(planned.config.remote)
    try:
        return look(planned, store, remote, warn)
    except RemoteError as error:
        warn(f"{error}; planned without it")
        return None
