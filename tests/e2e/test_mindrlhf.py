"""engine=mindrlhf around a stand-in checkout (tests/data/mindrlhf_standin): real msrun, two workers."""

import signal

import pytest

from tests.e2e.mindrlhf import BASE, begin, rows, run, wait_for_hanging
from tests.e2e.outside import STEPS, by_hand, dry_run, result, sourced, standin, weights_moved
from tests.processes import living


@pytest.fixture
def store(mindrlhf_store):
    return mindrlhf_store


def check_resumed(store, step):
    """Check a run that was ended after the checkpoint of `step`, and repeated."""
    assert not living(store)
    assert result(store, "grpo")["resumed_from"] == [0, step]
    assert [row["step"] for row in rows(store)] == list(range(1, STEPS + 1))
    assert weights_moved(store) == {float(STEPS)}


def test_a_run_that_hangs_is_ended_and_the_next_resumes(store):
    # Long enough for a loaded machine to start msrun and its workers, which write nothing meanwhile.
    hung = run(store, standin("hang@3"), "engine.silence_timeout_s=25")
    assert hung.exit_code == 1
    assert "hung: no worker wrote a line for 25 s" in hung.stderr
    assert not living(store)
    done = run(store)
    assert done.exit_code == 0, done.stderr
    check_resumed(store, 2)


@pytest.mark.long
def test_four_workers_with_rank_directories_are_killed_and_resume(store):
    four = ["engine.load_ckpt_format=ckpt", "engine.use_vllm=0", "layout=dp1_mp2_pp2"]
    first = begin(store, *four)
    wait_for_hanging(first, store, 4)
    first.send_signal(signal.SIGKILL)
    first.communicate()
    assert len(living(store)) >= 4
    done = run(store, *four)
    assert done.exit_code == 0, done.stderr
    check_resumed(store, 6)
    losses = [row["loss"] for row in rows(store)]  # the stand-in adds the rank to the loss that it logs
    assert losses == pytest.approx([1 / step + 3 for step in range(1, STEPS + 1)])


def test_the_scripts_of_a_dry_run_work_without_grpoflow(store):
    (script,) = dry_run(store, *BASE)
    logs = store.parent / "logs"
    assert "run grpo train end" in by_hand(script, logs)
    assert (logs / "worker_1.log").exists()


def test_it_runs_in_its_container_with_its_environment(mindrlhf_prepared):
    assert sourced(mindrlhf_prepared.parent) == [("grpo", "yes")]
