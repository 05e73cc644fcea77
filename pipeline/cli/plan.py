"""`grpoflow plan`: the stages that a run would execute, with the reasons."""

from argparse import Namespace

from pipeline.cli.command import Commands, add_json, add_target, target_of
from pipeline.errors import Exit
from pipeline.plan import checks, estimate, explain, resume
from pipeline.run.progress import Display
from pipeline.run.run import prepare_plan
from pipeline.terminal import as_json, console
from stages import engines


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
    missing, remote = planned.missing(store), {}
    if missing and planned.config.remote.url:
        from pipeline.run.sharing import Connection, Sharing  # imported late: it loads fsspec

        connection = Connection(planned.config.remote, "planned without it")
        remote = Sharing(planned, missing, store, Display(), connection).explained()
    checks.check_packages([spec for spec in missing if spec.name not in remote])
    rows = explain.explain(planned, store, remote)
    engine = engines.get(planned.config.engine.name)
    roles = engine.memory(engine.job(planned.config))
    warnings = checks.warnings(planned, store, roles)
    notes = [*resume.notes(planned, store), *estimate.notes(planned, store)]
    if options.json:
        print(as_json(explain.as_json(planned, rows, warnings, roles, notes)))
    else:
        explain.show(planned, rows, console(), warnings, roles, notes)
    done = all(row.state == "CACHED" or (row.state == "REMOTE" and not row.bytes) for row in rows)
    return Exit.DONE if done else Exit.PENDING
