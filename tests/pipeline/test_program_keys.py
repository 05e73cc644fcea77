"""Keys of engine.upstream are checked by asking the engine's interpreter, once until it changes."""

import json
import os

import pytest

from pipeline.config.load import load
from pipeline.plan import program_keys
from stages import engines
from tests.launch.launchers import executable

RUN = ["engine=verl", "model=qwen2_5_7b", "model.path=/m", "layout=dp4_mp1_pp1"]
KNOWN = "+engine.upstream.trainer.balance_batch=false"
UNKNOWN = "+engine.upstream.trainer.balance_bach=false"


@pytest.fixture
def python(tmp_path, monkeypatch):
    """Return an interpreter that tells verl's keys, and counts how often it was asked; it has no vLLM."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    answer = json.dumps({"defaults": {"trainer.balance_batch": True}})
    script = f"""#!/bin/sh
[ "$1" != -c ] || {{ echo False; exit; }}
echo asked >>{tmp_path}/asked; echo loading; echo '{answer}'
"""
    return executable(tmp_path / "bin" / "python", script)


def found(*overrides):
    program_keys._answer.cache_clear()  # as another process
    config, engine = load([*RUN, *overrides]), engines.get("verl")
    problems = [problem.remedy for problem in program_keys.problems(engine, config)]
    return problems, list(program_keys.notes(engine, config))


def test_an_unknown_key_is_refused_and_the_interpreter_is_asked_once(python, tmp_path):
    for _ in range(3):
        assert found(f"engine.python={python}", UNKNOWN) == (["did you mean trainer.balance_batch?"], [])
    assert found(f"engine.python={python}", KNOWN) == ([], [])
    assert (tmp_path / "asked").read_text().split() == ["asked"]
    os.utime(python, (1, 1))  # as if it was replaced
    assert found(f"engine.python={python}", KNOWN) == ([], [])
    assert (tmp_path / "asked").read_text().split() == ["asked"] * 2


@pytest.mark.parametrize(
    "overrides", [(), ("engine.python=/no/python",), ("engine.container=[docker,exec,x]",)]
)
def test_without_an_answer_keys_are_accepted_with_a_note(overrides):
    problems, notes = found(*overrides, UNKNOWN)
    assert problems == [] and any("was not checked" in note for note in notes)


def test_nothing_is_asked_without_added_keys(python, tmp_path):
    assert found(f"engine.python={python}") == ([], [])
    assert not (tmp_path / "asked").exists()
