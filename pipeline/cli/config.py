"""`grpoflow config` and `layouts`: the configuration, what a key means, and valid parallel layouts."""

import json
from argparse import Namespace
from dataclasses import asdict

from pipeline.cli.command import Commands, add_configuration, add_json
from pipeline.config import file
from pipeline.config.grammar import key_of
from pipeline.config.load import load, unchecked
from pipeline.config.sections import Config
from pipeline.errors import Exit
from pipeline.plan import keys
from pipeline.plan import layouts as planned
from pipeline.terminal import Column, Table, as_json, console
from stages.base.errors import as_override


def register(commands: Commands) -> None:
    """Add `config` and `layouts`."""
    parser = commands.add(
        "config",
        config,
        "print the configuration of a run as YAML, or explain a key",
        "model=qwen2_5_7b layout=dp1_mp4_pp2",
        "--explain train.beta",
        "train.beta=0.02 > my.yaml   # then: grpoflow run --config my.yaml",
    )
    parser.add_argument(
        "--explain",
        metavar="KEY",
        help="what a key (or a section) means: its unit, type, bounds and default, which stages read it, and "
        "which stages a change would rerun",
    )
    add_json(parser)
    add_configuration(parser)

    parser = commands.add(
        "layouts",
        layouts,
        "list all valid layouts with their memory per card, best first",
        "model=qwen2_5_7b cards=8 engine.device_memory_gib=64",
        "model=qwen2_5_72b cards=64 layout.train.recompute=true --json",
    )
    add_json(parser, "also the refused layouts, with all reasons")


def config(options: Namespace) -> int:
    """Print the configuration, or explain one key."""
    loaded = load(options.overrides, options.config_dir)
    if options.explain is not None:
        return _explain(options, loaded)
    values = loaded.plain()
    print(f"{as_json(values)}\n" if options.json else file.text(options.overrides, values), end="")
    return Exit.DONE


def _explain(options: Namespace, loaded: Config) -> int:
    chosen = [override for override in options.overrides if key_of(override) != options.explain]
    owners = keys.engines_with(options.explain)
    if owners and loaded.engine.name not in owners:  # read, but not checked: an engine may need further keys
        loaded = unchecked([f"engine={owners[0]}"])
        default = keys.explain(options.explain, loaded).value
    else:
        default = keys.explain(options.explain, load(chosen, options.config_dir)).value
    key = keys.explain(options.explain, loaded, options.config_dir)
    if options.json:
        print(as_json({**asdict(key), "default": default, "engines": owners}))
        return Exit.DONE
    grid = Table(["", Column("", "text")], key.path, head=False)
    grid.add("meaning", key.meaning)
    if owners:
        grid.add("engine", ", ".join(owners))
    grid.add("type", f"{key.type}{f', in {key.unit}' if key.unit else ''}")
    if not key.fields:
        grid.add("default", _shown(default))
    if default != key.value:
        grid.add("here", _shown(key.value))
    grid.add("read by", ", ".join(key.read_by) or "no stage")
    nothing = "reruns no stage: the key is not fingerprinted"
    nothing += " (a file that it names is, by content)" if key.read_by else ""
    if key.choices:
        nothing = "reruns what its values rerun"
    grid.add("a change", f"reruns: {', '.join(key.reruns)}" if key.reruns else nothing)
    for rule in key.rules:
        grid.add("checked by", rule)
    for name, text in key.choices.items():
        grid.add(f"={name}", text)
    for name, text in key.fields.items():
        grid.add(f"{key.path}.{name}", text)
    console().print(grid)
    return Exit.DONE


def _shown(value: object) -> str:
    return as_override(value) if not isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def layouts(options: Namespace) -> int:
    """List every valid layout, best first."""
    choices, refused = planned.find(options.overrides, options.config_dir)
    if options.json:
        print(as_json(planned.as_json(choices, refused)))
    else:
        planned.show(choices, refused, console())
    return Exit.DONE
