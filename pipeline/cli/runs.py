"""`grpoflow runs`, `show` and `diff`: the recorded runs of a store."""

import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console

from pipeline.cli.command import Commands, add_json, store_of
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.run import summary
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.terminal import Column, Table, as_json, console, say, terminal_width
from stages.base.keys import flat
from stages.report.headline import GREEDY, gain_text, pairs
from stages.report.text import figure, number, percent, words

NEWEST = 20
"""Number of runs that are listed without --all."""
LONGEST = 60
"""Characters of an override that is shown with its value in a list of runs."""
SHARES = ("accuracy_sft", "accuracy_grpo", "gain", "mean_at_k", "pass_at_k", "worked_share")
"""Keys of a result that its table of percentages shows."""


def register(commands: Commands) -> None:
    """Add the commands that read a store's runs."""
    parser = commands.add(
        "runs",
        runs,
        "list the newest runs of the store; pin or name them",
        "--pin last",
    )
    parser.add_argument("--all", action="store_true", help=f"list all runs, not only the newest {NEWEST}")
    add_json(parser, "all runs")
    parser.add_argument("--remote", action="store_true", help="runs recorded on the remote, of all users")
    parser.add_argument("--pin", metavar="RUN", help="never remove its artifacts by gc")
    parser.add_argument("--unpin", metavar="RUN", help="remove the pin")
    parser.add_argument(
        "--name", metavar="RUN=NAME", help="name a run, which gc then retains; RUN= removes the name"
    )

    parser = commands.add("show", show, "show one run: overrides, state, result, artifacts", "last")
    parser.add_argument("run", metavar="RUN", help="id, beginning of an id, name, or last")
    add_json(parser, "also the entire configuration")

    parser = commands.add(
        "diff", diff, "show how two runs differ in configuration and result", "20261121-0801 last"
    )
    parser.add_argument("run", metavar="RUN_A")
    parser.add_argument("other", metavar="RUN_B")
    add_json(parser, "key -> both values")


def runs(options: Namespace) -> int:
    """List runs, or pin, unpin or name one."""
    source: Any = history
    where: Any = store_of(options).root
    if options.remote:
        from pipeline.cli.remote import connect  # imported late: it loads fsspec
        from pipeline.store.remote import records as source

        where, _ = connect(options)
    for event, selector in (("pinned", options.pin), ("unpinned", options.unpin)):
        if selector is not None:
            source.record(where, history.select(source.runs(where), selector).id, event)
    if options.name is not None:
        selector, name = _parse_name(options.name)
        source.record(where, history.select(source.runs(where), selector).id, "named", name=name)
    records = list(source.runs(where).values())
    shown = records if options.all else records[-NEWEST:]
    if options.json:
        print(as_json([asdict(record) for record in records]))
        return Exit.DONE
    if not records:
        print("no runs are recorded")
        return Exit.DONE
    _list(shown)
    if len(records) > len(shown):
        say(f"{len(records) - len(shown)} older runs are not shown: --all")
    return Exit.DONE


def _list(records: Sequence[Record]) -> None:
    """Print runs; in a terminal only the overrides in which they differ."""
    listed = {record.id: [*filter(None, [record.options]), *record.overrides] for record in records}
    in_terminal, num_equal = terminal_width() is not None, 0
    if in_terminal:
        different = history.differing_overrides(records)
        own = (word for word in listed[records[0].id] if not word.startswith("store="))
        num_equal = len(set(own) - set(different[records[0].id]))
        for run, texts in different.items():
            listed[run] = [text if len(text) <= LONGEST else f"{text.partition('=')[0]}=…" for text in texts]
    table = Table(
        ["run", "state", "took", "accuracy", Column("overrides", "note" if in_terminal else "text"), "kept"]
    )
    for record in records:
        retention = ", ".join(filter(None, [record.name, "pinned" if record.pinned else None]))
        cells = (record.id, record.outcome, record.duration, _accuracy(record))
        table.add(*cells, " ".join(listed[record.id]), retention)
    console().print(table)
    if num_equal:
        say(f"{num_equal} overrides are the same in all of them: grpoflow show RUN")


def _parse_name(text: str) -> tuple[str, str]:
    """Return run and name of --name RUN=NAME; raise ConfigError if it is malformed."""
    selector, sign, name = text.partition("=")
    if not sign:
        rule = "must be RUN=NAME, or RUN= to remove the name"
        raise ConfigError([Problem("--name", text, rule)])
    history.check_name(name, "--name")
    return selector, name


def show(options: Namespace) -> int:
    """Show all recorded properties of a run."""
    root = store_of(options).root
    record = history.find(root, options.run)
    if options.json:
        print(as_json(asdict(record)))
        return Exit.DONE
    out = console()
    facts = Table(["", Column("", "text")], head=False)
    facts.add("run", f"{record.id}{f' ({record.name})' if record.name else ''}")
    facts.add("started", time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(record.started)))
    facts.add("state", f"{record.outcome}, took {record.duration or 'unknown'}")
    facts.add("overrides", " ".join(record.overrides) or "(none)")
    if record.options:
        facts.add("options", record.options)
    if record.message:
        facts.add("message", record.message)
    out.print(facts)
    if record.result:
        _show_result(record.result, out)
    artifacts = Table(["artifact", ""], f"artifacts in {root}")
    for artifact in record.artifacts.values():
        artifacts.add(artifact, "" if (root / artifact / "manifest.json").exists() else "not there")
    out.print(artifacts)
    if "tokenize" in record.artifacts:
        summary.print_data(root / record.artifacts["tokenize"], out)
    return Exit.DONE


def _show_result(result: Mapping[str, Any], out: Console) -> None:
    """Print a result: shares as percentages, and what else it holds."""
    measured = pairs(result)
    if measured:
        numbers = (Column(name, "number") for name in ("before", "after", "points"))
        shares = Table(["result", *numbers])
        for pair in measured:
            gain = gain_text(pair, result) if pair.label == GREEDY else pair.gain
            shares.add(pair.label, percent(pair.before), percent(pair.after), gain)
        out.print(shares)
    others = Table(["", Column("", "text")], head=False)
    for key, value in result.items():
        if not (measured and key in SHARES):
            known = flat(value) if isinstance(value, dict) else {"": value}
            shown = (
                f"{words(name)} {value if number(value) is None else figure(value)}"
                for name, value in known.items()
            )
            others.add(words(key), ", ".join(text.strip() for text in shown))
    if others.rows:
        out.print(others)


def diff(options: Namespace) -> int:
    """Show how two runs differ: configuration, then result."""
    root = store_of(options).root
    records = [history.find(root, selector) for selector in (options.run, options.other)]
    table = Table(["", *(Column(record.id, "text") for record in records)])
    sides = [{**flat(record.config), **flat(record.result, "result")} for record in records]
    keys = sorted(sides[0].keys() | sides[1].keys(), key=lambda key: (key.startswith("result"), key))
    if options.json:
        pairs = {key: [side.get(key) for side in sides] for key in keys}
        print(as_json({key: pair for key, pair in pairs.items() if pair[0] != pair[1]}))
        return Exit.DONE
    for key in keys:
        left, right = (str(side[key]) if key in side else "—" for side in sides)
        if left != right:
            table.add(key, left, right)
    if table.rows:
        console().print(table)
    else:
        print("no differences")
    return Exit.DONE


def _accuracy(record: Record) -> str:
    before, after = (number(record.result.get(f"accuracy_{stage}")) for stage in ("sft", "grpo"))
    return "" if before is None or after is None else f"{before:.3f} → {after:.3f}"
