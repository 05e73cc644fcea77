"""`grpoflow runs`, `show`, `diff` and `report`: what the store remembers of its runs."""

import functools
import json
import re
import time
import webbrowser
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pipeline.cli.command import Commands, add_run, store_of
from pipeline.config.plain import flat
from pipeline.errors import ConfigError, Exit, Problem, StoreError
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.terminal import Table, console
from stages.base.errors import as_override
from stages.report.text import number

NEWEST = 20
"""Runs that are listed unless all are asked for."""


def register(commands: Commands) -> None:
    """Add the commands that read a store's runs."""
    parser = commands.add(
        "runs",
        runs,
        "list the newest runs of the store; pin or name one",
        "--pin last",
        "train.beta=0.02 --since 7d   # those whose configuration has that value",
    )
    parser.add_argument("--all", action="store_true", help=f"not only the newest {NEWEST}")
    parser.add_argument("--model", metavar="NAME", help="of this model only, as model=NAME")
    parser.add_argument(
        "--since",
        metavar="TIME",
        type=_moment,
        help="started since 2026-11-20, 2026-11-20T08:30, or 30m, 12h, 7d ago",
    )
    parser.add_argument("--json", action="store_true", help="for programs: every run, or those chosen")
    parser.add_argument("--remote", action="store_true", help="everybody's runs, as the remote knows them")
    parser.add_argument("--pin", metavar="RUN", help="keep its artifacts whatever gc is told")
    parser.add_argument("--unpin", metavar="RUN", help="give that up")
    parser.add_argument("--name", metavar="RUN=NAME", help="give a run a name; named runs are kept too")

    parser = commands.add("show", show, "show one run: settings, state, result, artifacts", "last")
    parser.add_argument("run", metavar="RUN", help="id, beginning of an id, name, or last")
    parser.add_argument("--json", action="store_true", help="for programs, with its whole configuration")

    parser = commands.add(
        "diff", diff, "show how two runs differ in configuration and result", "20261121-0801 last"
    )
    parser.add_argument("run", metavar="RUN_A")
    parser.add_argument("other", metavar="RUN_B")
    parser.add_argument("--json", action="store_true", help="for programs: key -> its two values")

    parser = commands.add(
        "report", report, "print the path of a run's report; --open shows it in the browser", "last --open"
    )
    parser.add_argument("--open", action="store_true", help="open it in the browser")
    add_run(parser, "last")


def runs(options: Namespace) -> int:
    """List runs, or pin, unpin or name one."""
    places = [word for word in options.overrides if word.startswith(("store=", "remote=", "remote."))]
    filters = [override for override in options.overrides if override not in places]
    filters += [f"model={options.model}"] if options.model else []
    known, tell = _remembered(Namespace(**{**vars(options), "overrides": places}))
    for event, wanted in (("pinned", options.pin), ("unpinned", options.unpin)):
        if wanted is not None:
            tell(history.chosen(known(), wanted).id, event)
    if options.name is not None:
        wanted, _, name = options.name.partition("=")
        if not name:
            raise ConfigError([Problem("--name", options.name, "must be RUN=NAME")])
        tell(history.chosen(known(), wanted).id, "named", name=name)
    if options.all or options.json or options.remote or filters or options.since is not None:
        found = known()
        records, total = _chosen(list(found.values()), filters, options.since), len(found)
        fitting = len(records)
    else:
        found, fitting = history.newest(store_of(options).root, NEWEST)
        records, total = list(found.values()), fitting
    shown = records if options.all else records[-NEWEST:]
    if options.json:
        print(json.dumps([asdict(record) for record in records], indent=1))
        return Exit.DONE
    table = Table("run", "state", "took", "accuracy", "overrides", "kept")
    for record in shown:
        kept = ", ".join(filter(None, [record.name, "pinned" if record.pinned else None]))
        overrides = " ".join([record.options, *record.overrides]).strip()
        table.add_row(record.id, record.outcome, record.took, _accuracy(record), overrides, kept)
    if not records:
        print(f"none of {total} runs fits" if total else "no runs are recorded")
        return Exit.DONE
    console().print(table)
    if fitting > len(shown):
        print(f"{fitting - len(shown)} older runs are not shown: --all")
    return Exit.DONE


def _moment(text: str) -> float:
    """Unix time of a date, or of so many minutes, hours or days ago."""
    ago = re.fullmatch(r"(\d{1,6})([mhd])", text)
    if ago:
        return time.time() - int(ago[1]) * {"m": 60, "h": 3600, "d": 86400}[ago[2]]
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError as error:
        raise ArgumentTypeError(f"{text}: must be a date, or a number of m, h or d") from error


def _chosen(records: Sequence[Record], filters: Sequence[str], since: float | None) -> list[Record]:
    """The runs whose configurations have all of some values, each KEY=VALUE; a group's value is its name.

    Raises:
        ConfigError: a key that no run has.
    """
    chosen = [record for record in records if since is None or record.started >= since]
    for override in filters:
        key, _, value = override.partition("=")
        shown = [_shown(record.config, key) for record in chosen]
        if chosen and set(shown) == {None}:
            rule = "is a key of none of these runs"
            raise ConfigError([Problem(key, value, rule, "`grpoflow show` and `diff` tell a run's keys")])
        chosen = [record for record, text in zip(chosen, shown, strict=True) if _same(text, value)]
    return chosen


def _shown(value: Any, key: str) -> str | None:
    """What stands at a key, as it is typed; None where nothing does."""
    for step in key.split("."):
        value = value.get(step) if isinstance(value, Mapping) else None
    if isinstance(value, Mapping):
        value = value.get("name")
    return None if value is None else as_override(value)


def _same(shown: str | None, typed: str) -> bool:
    try:
        return float(shown or "") == float(typed)  # 0.0001 and 1e-4
    except ValueError:
        return shown == typed


def _remembered(options: Namespace) -> tuple[Callable[[], dict[str, Record]], Callable[..., object]]:
    """How to ask for the runs of the store or of its remote, and how to tell an event of one."""
    if not options.remote:
        root = store_of(options).root
        return functools.partial(history.runs, root), functools.partial(history.record, root)
    from pipeline.cli.remote import place_of
    from pipeline.store.remote import records

    place, _ = place_of(options)
    return functools.partial(records.runs, place), functools.partial(records.add, place)


def show(options: Namespace) -> int:
    """Show one run in full."""
    root = store_of(options).root
    record = history.find(root, options.run)
    if options.json:
        print(json.dumps(asdict(record), indent=1))
        return Exit.DONE
    print(f"run        {record.id}{f' ({record.name})' if record.name else ''}")
    print(f"started    {time.strftime('%Y-%m-%d %H:%M:%S %z', time.localtime(record.started))}")
    print(f"state      {record.outcome}, took {record.took or 'unknown'}")
    print(f"overrides  {' '.join(record.overrides) or '(none)'}")
    if record.options:
        print(f"options    {record.options}")
    if record.message:
        print(f"message    {record.message}")
    for key, value in record.result.items():
        print(f"result     {key}={value}")
    for artifact in record.artifacts.values():
        absent = "" if (root / artifact / "manifest.json").exists() else "  (not there)"
        print(f"artifact   {root / artifact}{absent}")
    return Exit.DONE


def diff(options: Namespace) -> int:
    """Show how two runs differ: configuration, then result."""
    root = store_of(options).root
    records = [history.find(root, wanted) for wanted in (options.run, options.other)]
    table = Table("", *(record.id for record in records))
    sides = [{**flat(record.config), **flat(record.result, "result")} for record in records]
    keys = sorted(sides[0].keys() | sides[1].keys(), key=lambda key: (key.startswith("result"), key))
    if options.json:
        pairs = {key: [side.get(key) for side in sides] for key in keys}
        print(json.dumps({key: pair for key, pair in pairs.items() if pair[0] != pair[1]}, indent=1))
        return Exit.DONE
    for key in keys:
        left, right = (str(side[key]) if key in side else "—" for side in sides)
        if left != right:
            table.add_row(key, left, right)
    if table.row_count:
        console().print(table)
    else:
        print("no differences")
    return Exit.DONE


def report(options: Namespace) -> int:
    """Print the path of a run's report; open it when asked to."""
    root = store_of(options).root
    record = history.find(root, options.run or "last")
    page = root / record.artifact("report") / "index.html"
    if not page.exists():
        hint = f"`grpoflow watch {record.id}` shows how far it came"
        raise StoreError(
            f"{page}: not there (run {record.id}: {record.outcome}; the report is made last); {hint}"
        )
    print(page)
    if options.open and not webbrowser.open(page.as_uri()):
        raise StoreError(f"{page}: no browser could be started; open it in one yourself")
    return Exit.DONE


def _accuracy(record: Record) -> str:
    before, after = (number(record.result.get(f"accuracy_{stage}")) for stage in ("sft", "grpo"))
    return "" if before is None or after is None else f"{before:.3f} → {after:.3f}"
