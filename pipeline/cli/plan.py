"""`grpoflow plan`."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING

from launch.machine import environment
from pipeline import engines
from pipeline.cli.command import Commands, add_configuration, add_target, target_of
from pipeline.errors import Exit, RemoteError
from pipeline.plan import cautions, explain
from pipeline.plan.graph import Plan
from pipeline.run import signals
from pipeline.run.run import prepare_plan
from pipeline.store.store import Store
from pipeline.terminal import console

if TYPE_CHECKING:
    from pipeline.plan.shared import Shared


def register(commands: Commands) -> None:
    """Add `plan`."""
    parser = commands.add(
        "plan",
        plan,
        "show what a run would do and why; starts nothing (exit 10: work pending)",
        "train.beta=0.02",
        "--until split",
    )
    add_configuration(parser)
    add_target(parser)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument(
        "--deep", action="store_true", help="read your own files again, whatever their times say"
    )


def plan(options: Namespace) -> int:
    """What a run would do, and why."""
    planned, store = prepare_plan(
        options.overrides, options.config_dir, options.deep, target=target_of(options)
    )
    places = {}
    if options.brought:
        from pipeline.plan import brought

        places = {spec.key: place for place, spec in brought.fitting([planned], options.brought).items()}
    shared = _look(planned, store)
    is_done = all(store.problem(spec.key) is None for spec in planned.asked)
    rows = explain.explain(planned, store, () if is_done else environment.problems(), places, shared)
    roles = engines.of(planned.config.engine.name).memory(planned.config)
    warnings = cautions.warnings(planned, store, roles)
    if options.json:
        print(json.dumps(explain.as_json(planned, rows, warnings, roles), indent=1))
    else:
        explain.show(planned, rows, console(), warnings, roles)
    return Exit.PENDING if any(map(_is_pending, rows)) else Exit.DONE


def _is_pending(row: explain.Row) -> bool:
    """Whether a run would have something to do; not with what stays on a remote."""
    return row.state in ("RUN", "BLOCKED") or (row.state == "REMOTE" and bool(row.bytes_written))


def _look(planned: Plan, store: Store) -> Shared | None:
    """What a remote has of it; nothing, and a warning, where it does not answer."""
    if not planned.config.remote.url:
        return None
    from pipeline.plan.shared import look, open_place, warn

    place = open_place(planned.config.remote)
    place.tell(warn)
    signals.install()  # ^C does not wait for answers that are still to come
    try:
        return look(planned, store, place, warn)
    except RemoteError as error:
        warn(f"{error}; planned without it")
        return None
