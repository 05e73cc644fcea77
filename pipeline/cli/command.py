"""What the commands share: how one is added, and what its words mean."""

from __future__ import annotations

import argparse
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipeline.config.compose_cache import compose_cached
from pipeline.config.directory import alone
from pipeline.config.give_way import give_way
from pipeline.config.load import derive, load
from pipeline.config.plain import flat
from pipeline.errors import StoreError
from pipeline.plan.target import Target
from pipeline.store import history
from pipeline.store.history import Record
from pipeline.store.store import Store
from stages.base.errors import as_override

OVERRIDES = """overrides are Hydra's: KEY=VALUE changes a value or chooses from a group, for example
  seed=1                          another seed
  train.beta=0.02 train.steps=80  values of a group
  layout=dp2_mp1_pp1              any layout by its name
  store=/data/store               another artifact store
groups: model layout dataset fetch tokenize reward engine rollout sft train evaluate export launcher
  remote experiment"""


class Commands:
    """Where a command's module adds its parser."""

    def __init__(self, parsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
        self._parsers = parsers

    def add(
        self, name: str, action: Callable[[Namespace], int], help: str, *examples: str, tidies: bool = False
    ) -> argparse.ArgumentParser:
        """Add a command's parser.

        Args:
            name: as it is typed.
            action: does the work and returns the exit code.
            help: one line, without a capital and a full stop.
            examples: what may follow the name.
            tidies: removes what is half written when it is stopped.
        """
        lines = "".join(f"  grpoflow {name} {example}\n" for example in examples)
        parser = self._parsers.add_parser(
            name,
            help=help,
            description=f"{help[0].upper()}{help[1:]}.",
            epilog=f"examples:\n  grpoflow {name}\n{lines}\n{OVERRIDES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.add_argument("--config-dir", type=Path, help="directory with config groups of your own")
        parser.set_defaults(action=action, tidies=tidies, run_is_optional=False)
        return parser


def add_run(parser: argparse.ArgumentParser, default: str) -> None:
    """Add a RUN that may be left out, `default` then."""
    meaning = f"id, beginning of an id, name, or last (default: {default})"
    parser.add_argument("run", metavar="RUN", nargs="?", help=meaning)
    parser.set_defaults(run_is_optional=True)


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add what of the graph is asked for."""
    parser.add_argument(
        "--until", metavar="STAGE", help="every stage of the graph up to this one, in its order"
    )
    again = "may be repeated, or name several with commas"
    parser.add_argument(
        "--only",
        metavar="STAGE",
        action="append",
        default=[],
        help=f"this stage and what it reads, and nothing else; {again}",
    )
    parser.add_argument(
        "--force",
        metavar="STAGE",
        action="append",
        default=[],
        help="build this stage anew although the store has it; what reads it follows. The earlier artifact "
        f"stays, and counts until the new one is whole; {again}",
    )
    parser.add_argument(
        "--from",
        dest="brought",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="take this artifact of another store (STORE/STAGE/FINGERPRINT) in place of building it; it must "
        "be whole and one of this plan's; may be repeated",
    )


def add_configuration(parser: argparse.ArgumentParser) -> None:
    """Add where overrides come from besides the command line."""
    parser.add_argument(
        "--config",
        dest="config_file",
        type=Path,
        metavar="FILE",
        help="values of a file (config --save writes one; sections of your own suffice); overrides win",
    )
    parser.add_argument(
        "--again", metavar="RUN", help="the overrides of an earlier run (id, name, last); overrides win"
    )


def read_configuration(options: Namespace) -> None:
    """Put the overrides of --config and --again before those that were typed."""
    typed = options.overrides
    if getattr(options, "config_file", None) is not None:
        from pipeline.config import file  # here: hardly anybody asks

        options.overrides = [*file.read(options.config_file, typed, options.config_dir), *typed]
    if getattr(options, "again", None) is not None:
        from pipeline.config import file

        stores = [override for override in typed if override.startswith("store=")]
        places = Namespace(overrides=stores, config_dir=None)
        record = history.find(store_of(places).root, options.again)
        for note in _changed(record, options.config_dir):
            print(f"note: run {record.id} had {note}", file=sys.stderr)
        options.overrides = [*file.below(record.overrides, options.overrides), *options.overrides]


def _changed(record: Record, config_dir: Path | None) -> Iterator[str]:
    """What the overrides of a run have become since, where conf or the environment was changed."""
    before, now = flat(record.config), flat(load(record.overrides, config_dir).plain())
    for key in now:
        if key != "store" and key in before and before[key] != now[key]:
            yield f"{key}={as_override(before[key])}, which is {as_override(now[key])} now"


def target_of(options: Namespace) -> Target:
    """What of the graph is asked for."""
    return Target.of(options.until, options.only, options.force)


def store_of(options: Namespace) -> Store:
    """The store that the overrides name."""
    return Store(Path(load(options.overrides, options.config_dir).store).absolute())


def values_of(options: Namespace) -> dict[str, Any]:
    """The plain configuration, for commands that need but parts of it."""
    composed = alone(compose_cached(options.overrides, options.config_dir), options.overrides)
    values, _ = give_way(composed, options.overrides)
    return derive(values)


def exported(root: Path, record: Record) -> Path:
    """A run's Hugging Face directory.

    Raises:
        StoreError: it has none.
    """
    directory = root / record.artifacts.get("export", "export/none")
    if not directory.is_dir():
        why = f"it was run with {record.target}" if record.target else "its engine exports none"
        reason = f"run {record.id} is {record.state}" if "export" in record.artifacts else why
        raise StoreError(f"{directory}: no exported model ({reason}); see `grpoflow runs`")
    return directory


def sections_of(record: Record, *names: str) -> dict[str, Any]:
    """Sections of a run; keys that are younger than the run have their defaults."""
    usual = derive(compose_cached([], None))
    return {name: {**usual[name], **record.section(name)} for name in names}
