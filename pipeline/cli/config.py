"""`grpoflow config`: the configuration, where it comes from, and what a key means."""

import json
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from pipeline.cli.command import Commands, add_configuration
from pipeline.config import file
from pipeline.config.load import Config, load
from pipeline.config.plain import flat
from pipeline.errors import ConfigError, Exit, Problem
from pipeline.plan import keys
from pipeline.plan.origin import origins
from pipeline.terminal import Table, console
from stages.base.errors import as_override


def register(commands: Commands) -> None:
    """Add `config`."""
    parser = commands.add(
        "config",
        config,
        "print the configuration that a run would have, as YAML, or explain a key of it",
        "model=qwen2_5_7b layout=dp1_mp4_pp2 --origin",
        "--explain train.beta",
        "train.beta=0.02 --save my.yaml   # then: grpoflow run --config my.yaml",
    )
    parser.add_argument("--origin", action="store_true", help="tell where each value comes from")
    parser.add_argument(
        "--explain",
        metavar="KEY",
        help="what a key (or a section) means: its unit, type, bounds and default, which stages read it, and "
        "what a change would build anew",
    )
    parser.add_argument("--save", type=Path, metavar="FILE", help="write it to a new file, for --config")
    parser.add_argument("--json", action="store_true", help="for programs")
    add_configuration(parser)


def config(options: Namespace) -> int:
    """Print, save or explain."""
    loaded = load(options.overrides, options.config_dir)
    if options.explain is not None:
        return _explain(options, loaded)
    if options.save is not None:
        return _save(options)
    values = loaded.plain()
    if not options.origin:
        print(json.dumps(values, indent=1) if options.json else file.as_yaml(values), end="\n" * options.json)
        return Exit.DONE
    found = origins(options.overrides, options.config_dir, values)
    leaves = flat(values)
    if options.json:
        rows = [{"key": key, "value": leaves[key], "origin": origin} for key, origin in found.items()]
        print(json.dumps(rows, indent=1))
        return Exit.DONE
    table = Table()
    for column in ("key", "value", "origin"):
        table.add_column(column)
    for key, origin in found.items():
        table.add_row(key, _shown(leaves[key]), origin)
    console().print(table)
    return Exit.DONE


def _save(options: Namespace) -> int:
    try:
        with options.save.open("x", encoding="utf-8") as out:
            out.write(file.text(options.overrides, options.config_dir))
    except OSError as error:
        raise ConfigError(
            [Problem("--save", str(options.save), f"{error.strerror}", "name a new file")]
        ) from error
    print(options.save)
    return Exit.DONE


def _explain(options: Namespace, loaded: Config) -> int:
    key = keys.explain(options.explain, loaded)
    chosen = [
        override
        for override in options.overrides
        if options.explain != override.lstrip("+~").partition("=")[0]
    ]
    default = keys.explain(options.explain, load(chosen, options.config_dir)).value
    if options.json:
        print(json.dumps({**asdict(key), "default": default}, indent=1))
        return Exit.DONE
    grid = Table.grid(padding=(0, 2))
    grid.title, grid.title_justify = key.path, "left"
    grid.add_row("meaning", key.meaning)
    grid.add_row("type", f"{key.type}{f', in {key.unit}' if key.unit else ''}")
    if not key.fields:
        grid.add_row("default", _shown(default))
    if default != key.value:
        grid.add_row("here", _shown(key.value))
    grid.add_row("read by", ", ".join(key.read_by) or "no stage")
    nothing = "builds nothing anew: no artifact's identity has it"
    nothing += "; of files that it names, the content counts" if key.read_by else ""
    grid.add_row("a change", f"builds anew: {', '.join(key.reruns)}" if key.reruns else nothing)
    for rule in key.rules:
        grid.add_row("checked by", rule)
    for name, text in key.fields.items():
        grid.add_row(f"{key.path}.{name}", text)
    console().print(grid)
    return Exit.DONE


def _shown(value: object) -> str:
    return as_override(value) if not isinstance(value, str) else json.dumps(value, ensure_ascii=False)
