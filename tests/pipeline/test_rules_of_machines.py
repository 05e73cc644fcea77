"""Rules of machines, which `run` checks when it starts; the others are in tests/pipeline/test_rules.py."""

from pathlib import Path

import pytest

from pipeline import engines
from pipeline.config.load import load
from pipeline.engines import machines

NODES = ("engine=mindrlhf", "layout=dp1_mp2_pp2", "launcher.cards_per_node=2")
DATA = Path(__file__).parents[1] / "data" / "gsm8k"
ONE = (*NODES, "launcher.cards_per_node=4")
SSH = (*NODES, "launcher=ssh")


@pytest.fixture
def shell(tmp_path):
    """Return the override for a stand-in of ssh that runs commands on this machine."""
    script = tmp_path / "shell"
    script.write_text(
        '#!/bin/sh\nwhile [ "$1" != here ] && [ "$1" != there ]; do shift; done\nshift\nexec sh -c "$*"\n'
    )
    script.chmod(0o755)
    return f"launcher.ssh=[{script}]"


def problems_of_machines(*overrides):
    config = load(overrides)
    engine = engines.get(config.engine.name)
    return list(machines.problems(config, engines.chosen(config), engine, config.cards))


def broken(store, shell):
    """Return breaking overrides, path, part of the rule, and passing overrides of each rule."""
    two = (*SSH, "launcher.hosts=[here,there]", shell, f"store={store}")
    return [
        ((*NODES, "launcher=local"), "cards", "needs 2 nodes", ONE),
        ((*ONE, "launcher.hosts=[here]"), "launcher.hosts", "is for launcher=ssh", ONE),
        ((*ONE, "launcher.sbatch=['--qos=x']"), "launcher.sbatch", "is for launcher=slurm", ONE),
        ((*ONE, "engine.container=[no-such-program,x]"), "engine.container", "is no program", ONE),
        ((*two, "launcher.hosts=[here,here]"), "launcher.hosts[1]", "is named twice", two),
        ((*two, "launcher.hosts=[me@localhost,there]"), "launcher.hosts[0]", "is no address by which", two),
        ((*two, "launcher.ssh=[]"), "launcher.ssh", "must be the ssh command", two),
        ((*SSH, "launcher.hosts=[here]"), "launcher.hosts", "must name 2 machines", two),
        ((*two, "engine.container=[docker,exec,x]"), "engine.container", "is for launcher=local", two),
        ((*two, "launcher.ssh=[/no/ssh]"), "launcher.hosts", "must work", two),
        ((*two, "engine.python=/no/python"), "launcher.hosts", "/no/python", two),
    ]


def test_each_rule_has_a_breaking_and_a_passing_configuration(tmp_path, shell):
    for breaking, path, message, passing in broken(tmp_path / "store", shell):
        result = problems_of_machines(*breaking)
        assert any(problem.path == path and message in problem.rule for problem in result), (breaking, result)
        assert all(problem.remedy for problem in result), result
        assert problems_of_machines(*passing) == [], passing


def test_an_existing_ray_cluster_is_reached_from_one_machine():
    run = ("engine=mindspeed_rl", "layout=dp2_mp2_pp2", "launcher.cards_per_node=4", "dataset=gsm8k")
    run = (*run, f"dataset.path={DATA}", "model.max_position_embeddings=8192")
    assert [problem.path for problem in problems_of_machines(*run)] == ["cards"]
    assert problems_of_machines(*run, "engine.ray_address='10.0.0.1:6379'") == []


def test_a_machine_without_slurm_is_refused(monkeypatch):
    for found, paths in (("/usr/bin/sbatch", []), (None, ["launcher"])):
        monkeypatch.setattr(machines.shutil, "which", lambda name, found=found: found)
        assert [problem.path for problem in problems_of_machines(*NODES, "launcher=slurm")] == paths
