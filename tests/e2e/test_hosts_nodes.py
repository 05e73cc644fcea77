"""A sweep of several machines with one luigid and one store: machines are network namespaces."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e import sleeping, sweeping
from tests.e2e.conftest import damage
from tests.launch.namespaces import OUTSIDE, machines
from tests.pipeline.remote import servers
from tests.processes import living, wait_until

pytestmark = [pytest.mark.nodes, pytest.mark.slow]
LUIGID = """
[resources]
cards_host0 = 1
cards_host1 = 1
[scheduler]
worker_disconnect_delay = 5
prune_on_get_work = true
"""
SEEDS, RATES = 2, 3
EXPECTED = Counter({"split": SEEDS, "sft": SEEDS, "grpo": SEEDS * RATES})
POINTS = [
    [f"seed={seed}", f"train.learning_rate=0.000{rate + 1}"] for seed in range(SEEDS) for rate in range(RATES)
]
LONG_S = 300.0


@pytest.fixture(scope="module")
def hosts(tmp_path_factory):
    """Two machines."""
    with machines(2, tmp_path_factory.mktemp("machines"), outside=True) as made:
        yield made


@pytest.fixture
def luigid(hosts, tmp_path):
    """The address of a luigid that both machines reach; each has one card."""
    port, home = servers.free_port(), tmp_path / "luigid"
    home.mkdir()
    (home / "luigi.cfg").write_text(LUIGID)
    program = [str(Path(sys.executable).parent / "luigid"), "--address", OUTSIDE, "--port", str(port)]
    here = ["env", "-C", str(home), f"LUIGI_CONFIG_PATH={home / 'luigi.cfg'}"]
    with servers.started([*here, *program, "--state-path", str(home / "state")], port, OUTSIDE):
        yield f"http://{OUTSIDE}:{port}"


class Sweep:
    """A process per point on each machine, all with one store."""

    def __init__(self, directory, hosts, luigid):
        self.store, self.journal = directory / "store", directory / "journal"
        self.hosts, self.luigid, self.output = hosts, luigid, directory / "output"

    def start(self, number):
        """Start the processes of a machine; their names and addresses are those of the machine."""
        named = ["unshare", "--uts", "sh", "-c", f'hostname host{number} && exec "$@"', "sh"]
        words = sleeping.overrides(self.store, split_s=0.5, sft_s=2.0, grpo_s=4.0)
        processes = []
        for point in POINTS:
            luigi = [str(Path(sys.executable).parent / "luigi"), "--module", "pipeline", "Grpo"]
            luigi += ["--overrides", json.dumps([*words, *point]), "--config-dir", str(sleeping.TOY / "conf")]
            with self.output.open("ab") as output:
                processes.append(
                    subprocess.Popen(
                        [*self.hosts.insides[number], *named, *luigi, "--scheduler-url", self.luigid],
                        cwd=self.store.parent,
                        env=sleeping.environment(self.journal),
                        stdout=output,
                        stderr=output,
                    )
                )
        return processes

    def events(self):
        """Return the events of each artifact; none before the first stage begins."""
        return sleeping.read(self.journal) if self.journal.exists() else {}

    def check_complete(self):
        """The store is complete, no stage ran twice at the same time, and none again after its end."""
        assert sweeping.count(self.store) == EXPECTED and damage(self.store) == []
        assert not living(self.store)
        for lines in self.events().values():
            assert Counter(event.kind for event in lines)["twice"] == 0
            assert [event.kind for event in lines].index("end") == len(lines) - 1

    def describe(self):
        """Return what happened, for a failed assertion."""
        return f"{self.journal.read_text()}\n{self.output.read_text()}"


def busiest(events, host):
    """Return the largest number of stages that a machine ran at the same time."""
    lines = sorted(
        (event for lines in events.values() for event in lines if event.where == host),
        key=lambda event: event.time_s,
    )
    now = most = 0
    for event in lines:
        now += 1 if event.kind == "begin" else -1
        most = max(most, now)
    return most


def test_two_machines_divide_a_sweep_between_them(hosts, luigid, tmp_path):
    sweep = Sweep(tmp_path, hosts, luigid)
    processes = [process for number in (0, 1) for process in sweep.start(number)]
    assert [process.wait(LONG_S) for process in processes] == [0] * len(processes), sweep.describe()
    sweep.check_complete()
    events = sweep.events()
    assert all(len(lines) == 2 for lines in events.values()), sweep.describe()
    assert [busiest(events, f"host{number}") for number in (0, 1)] == [1, 1]
    ran = Counter(lines[0].where for artifact, lines in events.items() if artifact.startswith("grpo/"))
    assert min(ran["host0"], ran["host1"]) >= 2, ran


def test_the_work_of_a_dead_machine_is_taken_over(hosts, luigid, tmp_path):
    sweep = Sweep(tmp_path, hosts, luigid)
    dead, alive = sweep.start(0), sweep.start(1)

    def trains(host):
        return any(
            artifact.startswith("grpo/") and lines[-1].kind == "begin" and lines[-1].where == host
            for artifact, lines in sweep.events().items()
        )

    wait_until(lambda: trains("host0"), LONG_S, describe=sweep.describe)
    for process in hosts.processes(0):
        os.kill(process, signal.SIGKILL)
    killed = time.time()
    for process in dead:
        process.wait()
    assert [process.wait(LONG_S) for process in alive] == [0] * len(alive), sweep.describe()
    sweep.check_complete()
    repeated = [lines for lines in sweep.events().values() if len(lines) > 2]
    assert repeated, sweep.describe()
    for first, *again in repeated:
        assert first.where == "host0" and first.time_s < killed
        assert [event.where for event in again] == ["host1"] * 2
