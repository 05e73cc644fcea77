"""`grpoflow completion`: shell completion with argcomplete."""

import argparse
from argparse import Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import argcomplete

from pipeline.cli.command import Commands
from pipeline.config.compose import PRESET, VALUE, config_files, in_presets
from pipeline.config.load import defaults
from pipeline.errors import REPORTED, Exit
from pipeline.plan import keys
from stages.base.keys import flat
from stages.catalog import STAGES


def register(commands: Commands) -> None:
    """Add `completion`."""
    parser = commands.add(
        "completion",
        completion,
        "print the shell code that completes commands, options, choices and keys",
        'bash     # in ~/.bashrc: eval "$(grpoflow completion bash)"',
        'zsh      # in ~/.zshrc:  eval "$(grpoflow completion zsh)"',
        "fish     # in config.fish: grpoflow completion fish | source",
        overrides=False,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"))


def completion(options: Namespace) -> int:
    """Print the shell code."""
    print(argcomplete.shellcode(["grpoflow"], shell=options.shell))
    return Exit.DONE


def complete(parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser]) -> None:
    """Answer a completion request of the shell, and exit."""
    names = argcomplete.ChoicesCompleter(STAGES)
    completers = {"overrides": overrides, "until": names, "only": names, "force": names, "stage": names}
    for command in commands.values():
        for action in command._actions:
            if action.dest in completers:
                action.completer = completers[action.dest]  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser)


def overrides(prefix: str, parsed_args: Namespace, **_: Any) -> list[str]:
    """Return the overrides that begin with `prefix`; none if the words so far are invalid."""
    try:
        return [word for word in _overrides(prefix, parsed_args.config_dir) if word.startswith(prefix)]
    except REPORTED:  # running the command reports the error
        return []


def _overrides(prefix: str, config_dir: Path | None) -> Iterator[str]:
    """Yield GROUP= and KEY=, or the values after the sign."""
    name, sign, _ = prefix.partition("=")
    files = [Path(name) for name in config_files(config_dir)]
    if not sign:
        yield from dict.fromkeys(f"{file.parent}=" for file in files if file.parent.name)
        yield from (f"{key}=" for key in flat(defaults().plain()))
    elif name == PRESET:
        yield from (f"{name}={file.stem}" for file in files if in_presets(str(file)))
    elif VALUE.match(prefix):
        choices = keys.explain(name, defaults()).type
        if choices == "true or false":
            yield from (f"{name}=true", f"{name}=false")
        elif choices.startswith("one of "):
            yield from (f"{name}={choice}" for choice in choices.removeprefix("one of ").split(", "))
    else:
        yield from (f"{name}={file.stem}" for file in files if str(file.parent) == name)
