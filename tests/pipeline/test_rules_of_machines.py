"""What `run` asks of the launcher: as tests/pipeline/test_rules.py, but asked when a run starts."""

import pytest

from pipeline.config.load import load
from pipeline.engines import machines

NODES = ("engine=mindrlhf", "layout=dp1_mp2_pp2", "launcher.cards_per_node=2")
SSH = (*NODES, "launcher=ssh")


@pytest.fixture
def shell(tmp_path):
    """Stands for ssh to this very machine; tests/launch/test_nodes.py asks real ones."""
    script = tmp_path / "shell"
    script.write_text(
        '#!/bin/sh\nwhile [ "$1" != here ] && [ "$1" != there ]; do shift; done\nshift\nexec sh -c "$*"\n'
    )
    script.chmod(0o755)
    return f"launcher.ssh=[{script}]"


def asked(*overrides):
    config = load(overrides)
    return list(machines.machines(config, config.engine.container, "engine.container", config.cards))


def broken(store, shell):
    """(what breaks a rule, its path, what is told, what keeps it)."""
    two = (*SSH, "launcher.hosts=[here,there]", shell, f"store={store}")
    return [
        ((*NODES, "launcher=local"), "cards", "needs 2 nodes", (*NODES, "launcher.cards_per_node=4")),
        ((*SSH, "launcher.hosts=[here]"), "launcher.hosts", "must name 2 machines", two),
        ((*two, "engine.container=[docker,exec,x]"), "engine.container", "is for launcher=local", two),
        ((*two, "launcher.ssh=[/no/ssh]"), "launcher.hosts", "must work", two),
        ((*two, "engine.python=/no/python"), "launcher.hosts", "/no/python", two),
    ]


def test_what_breaks_each_is_told_what_to_do_and_what_keeps_it_is_not(tmp_path, shell):
    for breaks, path, told, keeps in broken(tmp_path / "store", shell):
        found = asked(*breaks)
        assert any(problem.path == path and told in problem.rule for problem in found), (breaks, found)
        assert all(problem.remedy for problem in found), found
        assert asked(*keeps) == [], keeps


MINDSPEED_RL = ("engine=mindspeed_rl", "engine.contract=05a90d7", "model=qwen2_5_1_5b")
SUPERVISED = (
    "engine.sft=mindformers",
    "mindformers.python=/no/sft/python",
    "mindformers.env_scripts=[/no/set_env.sh]",
)


@pytest.mark.parametrize(
    ("overrides", "lacking"),
    [
        (("engine=mindrlhf", "engine.mindformers_home=/no/mindformers"), ["/no/mindformers"]),
        ((*MINDSPEED_RL, "engine.mindspeed_rl_home=/no/rl"), ["/no/rl"]),
        (("engine=mindrlhf", *SUPERVISED), ["/no/sft/python", "/no/set_env.sh"]),
        (("engine=mindrlhf", "engine.python=no_such_python3.10"), ["no_such_python3.10"]),
    ],
)
def test_nodes_are_asked_for_what_every_program_of_the_run_needs(tmp_path, shell, overrides, lacking):
    two = ("launcher=ssh", "launcher.cards_per_node=2", "launcher.hosts=[here,there]", shell)
    config = load([*overrides, "layout=dp1_mp2_pp2", *two, f"store={tmp_path / 'store'}"])
    found = list(machines.machines(config, (), "engine.container", config.cards))
    assert len(found) == 2 * len(lacking)  # two nodes
    for host in ("here", "there"):
        told = [problem.rule for problem in found if problem.value == host]
        assert all(any(path in rule for rule in told) for path in lacking), told
