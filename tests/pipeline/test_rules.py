"""Rules of packages and machines; test_section_rules.py has those of sections, engines have their own."""

import functools
import importlib.util
import shutil
from pathlib import Path

import pytest

from pipeline.config.load import load
from pipeline.plan import checks, machines
from stages import engines
from stages.base.errors import ConfigError
from tests.launch.launchers import several
from tests.pipeline.plans import MINDSPEED_RL

DATA = Path(__file__).parents[1] / "data"


@functools.cache
def problems(overrides):
    try:
        load(overrides)
    except ConfigError as error:
        return error.problems
    return ()


@pytest.mark.parametrize(
    ("overrides", "remedy"),
    [
        ("reward.functions=[maths] reward.weights=[1.0]", "pip install 'grpoflow[maths]'"),
        ("reward=cosine reward.length.correct_by=maths", "pip install 'grpoflow[maths]'"),
        ("train.loggers=[wandb]", "pip install 'grpoflow"),
    ],
)
def test_a_missing_package_is_named(overrides, remedy, monkeypatch):
    for installed in (object(), None):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name, installed=installed: installed)
        problems.cache_clear()
        found = [problem.remedy for problem in problems(tuple(overrides.split()))]
        assert len(found) == (installed is None)
        assert all(text.startswith(remedy) for text in found)
    problems.cache_clear()


NODES = ("engine=mindrlhf", "layout=dp1_mp2_pp2", "launcher.cards_per_node=2")
ONE = (*NODES, "launcher.cards_per_node=4")
SSH = (*NODES, "launcher=ssh")


@pytest.fixture
def two(tmp_path):
    """Return overrides for two machines, with a mock of ssh that runs commands on this one."""
    launcher = several(tmp_path, 2)
    named = (f"launcher.hosts=[{','.join(launcher.hosts)}]", f"launcher.ssh=[{launcher.ssh[0]}]")
    return (*SSH, *named, f"store={tmp_path / 'store'}")


def machine_problems(*overrides):
    config = load(overrides)
    engine = engines.get(config.engine.name)
    return list(machines.problems(config, engine, config.cards))


def test_each_rule_of_machines_has_a_breaking_and_a_passing_configuration(two):
    ray = (*MINDSPEED_RL, "launcher.cards_per_node=4")
    existing = "engine.ray_address='10.0.0.1:6379'"  # is reached from one machine
    assert machine_problems(*ONE) == machine_problems(*two) == machine_problems(*ray, existing) == []
    for breaking, path, message in (
        ((*NODES, "launcher=local"), "cards", "needs 2 nodes"),
        (ray, "cards", "needs 2 nodes"),
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
        result = machine_problems(*breaking)
        assert any(problem.path == path and message in problem.rule for problem in result), (breaking, result)
        assert all(problem.remedy for problem in result), result


def test_a_machine_without_slurm_is_refused(monkeypatch):
    for found, paths in (("/usr/bin/sbatch", []), (None, ["launcher"])):
        monkeypatch.setattr(machines.shutil, "which", lambda name, found=found: found)
        assert [problem.path for problem in machine_problems(*NODES, "launcher=slurm")] == paths


def test_mindspeed_rl_needs_checkout_and_machines(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: name)  # of Slurm
    standin = DATA / "mindspeed_rl_standin"
    homes = (f"engine.mindspeed_rl_home={standin / 'checkout'}",)
    apart = ("engine.use_integrated_worker=false", "train.prompts_per_step=64", "launcher.cards_per_node=8")
    inside = ("launcher=slurm", "engine.container=[docker,exec,rl]")  # nothing would run in the container
    for overrides, missing in (
        ((), ["engine.mindspeed_rl_home"]),
        (homes, []),
        ((*homes, *apart), ["cards"]),
        ((*homes, *inside), ["engine.container"]),
    ):
        needs = checks.needs(load([*MINDSPEED_RL, *overrides]))
        assert [problem.path for problem in needs] == missing, overrides


def test_a_ray_cluster_must_answer_and_its_jobs_need_no_container():
    ray = ("launcher=ray", "launcher.ray_address=http://127.0.0.1:9")  # nobody listens at port 9
    (problem,) = machines.queue_problems(load([*ONE, *ray]).launcher)
    assert problem.path == "launcher.ray_address" and "Connection refused" in problem.rule and problem.remedy
    inside = "engine.container=[sh,-c,x]"
    assert machine_problems(*ONE, *ray) == []
    assert [problem.path for problem in machine_problems(*ONE, *ray, inside)] == ["engine.container"]
    assert machine_problems(*ONE, *ray, inside, "launcher.stages=[tokenize]") == []  # grpo runs here
    paths = [problem.path for problem in machine_problems(*NODES, *ray, "launcher.stages=[tokenize]")]
    assert paths == ["cards"]
