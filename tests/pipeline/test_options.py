"""Values of command-line options: every numeric option has bounds, and stage names are never empty."""

import argparse

import pytest

from pipeline.cli import main, make_parsers
from pipeline.cli.command import Bounded

NUMERIC = ("N", "HOURS", "SECONDS", "DAYS", "PORT")
"""Metavars of options that take a number."""


def options():
    """Every option and positional of every command, with its command's name."""
    for name, command in make_parsers()[1].items():
        for action in command._actions:
            yield name, command, action


def numeric():
    return [
        (name, command, action) for name, command, action in options() if isinstance(action.type, Bounded)
    ]


def test_every_numeric_option_declares_bounds():
    undeclared = [
        f"{name} {action.option_strings}"
        for name, _, action in options()
        if not isinstance(action.type, Bounded)
        and (
            action.type in (int, float)
            or action.metavar in NUMERIC
            or (isinstance(action.default, (int, float)) and not isinstance(action.default, bool))
        )
        and not isinstance(action, (argparse._StoreTrueAction, argparse._StoreFalseAction))
    ]
    assert undeclared == []
    assert {f"{name} {action.option_strings[-1]}" for name, _, action in numeric()} >= {
        "gc --keep", "run --workers", "logs --worker", "ui --port",
        "sweep --cards", "serve-check --prompts",
    }  # fmt: skip


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e999", "", "x", "1.5", "-1", "9" * 30])
def test_a_number_out_of_bounds_is_refused(value, capsys):
    with pytest.raises(SystemExit) as exit:
        main(["ui", f"--port={value}"])
    assert exit.value.code == 2
    assert f"argument --port: {value}: must be" in capsys.readouterr().err


def test_bounds_and_defaults_are_accepted():
    for _, _, action in numeric():
        for value in (action.type.least, action.type.most, action.default):
            assert value is None or action.type(str(value)) == value


EMPTY = ["", ",", "tokenize,,split"]


@pytest.mark.parametrize("command", ["plan", "run", "sweep"])
@pytest.mark.parametrize("option", ["--only", "--until", "--force"])
def test_an_empty_or_unknown_stage_name_is_refused(command, option, tmp_path, capsys):
    store = tmp_path / "store"
    for value in [*EMPTY, "nosuch"]:
        arguments = [command, option, value, f"store={store}"]
        assert main([*arguments, "--plan"] if command == "sweep" else arguments) == 2, value
        output = capsys.readouterr()
        assert output.out == "" or command == "sweep"
        assert option in output.err and ("no such stage" in output.err or "empty" in output.err)
    assert not store.exists()
