"""What `run` asks of the launcher: as tests/pipeline/test_rules.py, but asked when a run starts."""

from pathlib import Path

import pytest

from pipeline.config import load
from pipeline.engines import machines
from pipeline.errors import Problem
from tests.pipeline.rule_cases import without_entry

NODES = ("engine=mindrlhf", "layout=dp1_mp2_pp2", "launcher.cards_per_node=2")
SSH = (*NODES, "launcher=ssh")


@pytest.fixture
def shell(tmp_path: Path) -> str:
    """Stands for ssh to this very machine; tests/launch/test_nodes.py asks real ones."""
    script = tmp_path / "shell"
    script.write_text(
        '#!/bin/sh\nwhile [ "$1" != here ] && [ "$1" != there ]; do shift; done\nshift\nexec sh -c "$*"\n'
    )
    script.chmod(0o755)
    return f"launcher.ssh=[{script}]"


def asked(*overrides: str) -> list[Problem]:
    config = load(overrides)
    return list(machines.machines(config, config.engine.container, "engine.container"))


def broken(store: Path, shell: str) -> list[tuple[tuple[str, ...], str, str, tuple[str, ...]]]:
    """(what breaks a rule, its path, what is told, what keeps it)."""
    two = (*SSH, "launcher.hosts=[here,there]", shell, f"store={store}")
    return [
        ((*NODES, "launcher=local"), "cards", "needs 2 nodes", (*NODES, "launcher.cards_per_node=4")),
        ((*SSH, "launcher.hosts=[here]"), "launcher.hosts", "must name 2 machines", two),
        ((*two, "engine.container=[docker,exec,x]"), "engine.container", "is for launcher=local", two),
        ((*two, "launcher.ssh=[/no/ssh]"), "launcher.hosts", "must work", two),
        ((*two, "engine.python=/no/python"), "launcher.hosts", "/no/python", two),
    ]


def test_what_breaks_each_is_told_what_to_do_and_what_keeps_it_is_not(tmp_path: Path, shell: str) -> None:
    for breaks, path, told, keeps in broken(tmp_path / "store", shell):
        found = asked(*breaks)
        assert any(problem.path == path and told in problem.rule for problem in found), (breaks, found)
        assert all(problem.remedy for problem in found), found
        assert asked(*keeps) == [], keeps


def test_every_rule_has_an_entry(tmp_path: Path, shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> None:
        for breaks, *_ in broken(tmp_path / "store", shell):
            asked(*breaks)

    assert without_entry((machines,), {}, monkeypatch, ask) == []
