"""A training that a signal asks to stop; real trainings with two workers: tests/e2e/test_resume.py."""

import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from stages.base.errors import Stopped
from stages.grpo.stopping import SIGNALS, StopRequest


@pytest.mark.parametrize("number", SIGNALS)
def test_signals_are_noted_from_the_first_step_on_and_handlers_restored(number):
    before = {each: signal.getsignal(each) for each in SIGNALS}
    with StopRequest() as stop:
        assert signal.getsignal(number) == before[number]
        stop.listen()
        stop.listen()
        assert not stop.is_noted
        os.kill(os.getpid(), number)
        assert stop.is_noted
        stopped = stop.stopped(7)
    assert stopped.exit_code == 128 + number and number.name in str(stopped) and "step 7" in str(stopped)
    assert {each: signal.getsignal(each) for each in SIGNALS} == before


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_before_the_first_step_ends_the_process_at_once(number):
    code = "import os, sys; from stages.grpo.stopping import StopRequest\n"
    code += "with StopRequest(): os.kill(os.getpid(), int(sys.argv[1]))"
    done = subprocess.run([sys.executable, "-c", code, str(int(number))])
    assert done.returncode == -number


def test_a_stage_that_was_stopped_has_the_exit_code_of_the_signal(monkeypatch, tmp_path, capsys):
    from stages import __main__ as process

    def stop(context):
        raise Stopped(signal.SIGTERM, "stopped by SIGTERM after step 3, with a checkpoint")

    monkeypatch.setattr(process.Context, "load", lambda path: None)
    monkeypatch.setattr(process.planned_code, "require", lambda path: None)
    monkeypatch.setattr(process, "entry", lambda name: stop)
    assert process.main(["grpo", str(tmp_path / "spec.json")]) == 143
    assert capsys.readouterr().err == "stopped by SIGTERM after step 3, with a checkpoint\n"


@pytest.mark.parametrize(
    ("checkpoint_every", "other_worker", "saved", "last"),
    [(10, False, [3], 3), (10, True, [3], 3), (3, False, [3], 3), (0, False, [], 6)],
    ids=["this worker", "another worker", "due anyway", "without checkpoints"],
)
def test_all_workers_stop_after_the_step_in_which_one_got_a_signal(
    checkpoint_every, other_worker, saved, last, monkeypatch, tmp_path
):
    pytest.importorskip("mindspore")
    from stages.grpo import stage

    steps, saves, barriers = [], [], []
    stop = StopRequest()

    def take_step(step):
        steps.append(step)
        if step == 3 and not other_worker:
            stop._note(signal.SIGTERM, None)
        return SimpleNamespace(learned=SimpleNamespace(problem=None), metrics={})

    def minimum(number):
        return min(number, 0 if other_worker and steps[-1] == 3 else 1)

    config = SimpleNamespace(
        steps=6, checkpoint_every=checkpoint_every, validate_every=0, keep_best=False, patience=None
    )
    trainer = SimpleNamespace(
        job=SimpleNamespace(train=config), step=take_step, minimum=minimum, barrier=lambda: barriers.append(1)
    )
    monkeypatch.setattr(stage.checkpoint, "save", lambda trainer, checkpoints, step, best: saves.append(step))

    def train():
        return stage.train(trainer, None, tmp_path, 0, stage.Best(), None, stop)

    if last < config.steps:
        with stop, pytest.raises(Stopped, match="after step 3"):
            train()
        assert barriers == [1]
    else:
        with stop:
            assert train() == last
    assert steps == list(range(1, last + 1)) and saves == saved
