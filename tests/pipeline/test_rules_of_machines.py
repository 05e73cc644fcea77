"""Rules of machines, which `run` checks when it starts; the others are in tests/pipeline/test_rules.py."""

import shutil
from pathlib import Path

import pytest

from pipeline import engines
from pipeline.config.load import load
from pipeline.engines import machines
from tests.pipeline.plans import MINDSPEED_RL

NODES = ("engine=mindrlhf", "layout=dp1_mp2_pp2", "launcher.cards_per_node=2")
DATA = Path(__file__).parents[1] / "data"
ONE = (*NODES, "launcher.cards_per_node=4")
SSH = (*NODES, "launcher=ssh")


@pytest.fixture
def two(tmp_path):
    """Overrides for two machines, with a mock of ssh that runs commands on this one."""
    script = tmp_path / "shell"
    script.write_text(
        '#!/bin/sh\nwhile [ "$1" != here ] && [ "$1" != there ]; do shift; done\nshift\nexec sh -c "$*"\n'
    )
    script.chmod(0o755)
    return (*SSH, "launcher.hosts=[here,there]", f"launcher.ssh=[{script}]", f"store={tmp_path / 'store'}")


def problems(*overrides):
    config = load(overrides)
    engine = engines.get(config.engine.name)
    return list(machines.problems(config, engines.chosen(config), engine, config.cards))


def test_each_rule_has_a_breaking_and_a_passing_configuration(two):
    assert problems(*ONE) == problems(*two) == []
    for breaking, path, message in (
        ((*NODES, "launcher=local"), "cards", "needs 2 nodes"),
        ((*ONE, "launcher.hosts=[here]"), "launcher.hosts", "is for launcher=ssh"),
        ((*ONE, "launcher.sbatch=['--qos=x']"), "launcher.sbatch", "is for launcher=slurm"),
        ((*ONE, "engine.container=[no-such-program,x]"), "engine.container", "is no program"),
        ((*two, "launcher.hosts=[here,here]"), "launcher.hosts[1]", "is named twice"),
        ((*two, "launcher.hosts=[me@localhost,there]"), "launcher.hosts[0]", "is no address by which"),
        ((*SSH, "launcher.hosts=[here]"), "launcher.hosts", "must name 2 machines"),
        ((*two, "engine.container=[docker,exec,x]"), "engine.container", "is for launcher=local"),
        ((*two, "launcher.ssh=[/no/ssh]"), "launcher.hosts", "must work"),
        ((*two, "engine.python=/no/python"), "launcher.hosts", "/no/python"),
    ):
        result = problems(*breaking)
        assert any(problem.path == path and message in problem.rule for problem in result), (breaking, result)
        assert all(problem.remedy for problem in result), result


def test_an_existing_ray_cluster_is_reached_from_one_machine():
    run = (*MINDSPEED_RL, "launcher.cards_per_node=4")
    assert [problem.path for problem in problems(*run)] == ["cards"]
    assert problems(*run, "engine.ray_address='10.0.0.1:6379'") == []


def test_a_machine_without_slurm_is_refused(monkeypatch):
    for found, paths in (("/usr/bin/sbatch", []), (None, ["launcher"])):
        monkeypatch.setattr(machines.shutil, "which", lambda name, found=found: found)
        assert [problem.path for problem in problems(*NODES, "launcher=slurm")] == paths


def test_mindspeed_rl_needs_checkout_converter_and_machines(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)  # of Slurm
    standin = DATA / "mindspeed_rl_standin"
    homes = (f"engine.mindspeed_rl_home={standin / 'head'}", f"engine.mindspeed_llm_home={standin / 'llm'}")
    apart = ("engine.use_integrated_worker=false", "train.prompts_per_step=64", "launcher.cards_per_node=8")
    inside = ("launcher=slurm", "engine.container=[docker,exec,rl]")  # nothing would run in the container
    for overrides, missing in (
        ((), ["engine.mindspeed_rl_home", "engine.mindspeed_llm_home"]),
        (homes, []),
        ((f"engine.mindspeed_rl_home={standin / 'window'}",), []),
        ((*homes, *apart), ["cards"]),
        ((*homes, *inside), ["engine.container"]),
    ):
        needs = engines.needs(load([*MINDSPEED_RL, *overrides]))
        assert [problem.path for problem in needs] == missing, overrides
