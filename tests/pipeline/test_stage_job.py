"""Waiting for the job of a stage, whatever the queue: when a job is submitted again, and when it is not."""

import itertools

import pytest

from launch.nodes.stage_queue import Ending, Queue, Unanswered
from pipeline.errors import StageFailed
from pipeline.run import stage_job
from pipeline.run.run import prepare_plan
from tests.pipeline.artifacts import commit_spec

LOST, WAITED = None, Ending("found no free 8 NPU in 900 s, and Ray ended it", never_began=True)


class Scripted(Queue):
    """Queue whose jobs end one after the other as a list says; after the last one the artifact is there."""

    cluster, lost_by = "Ray", "a restart of its head node"

    def __init__(self, logs, endings, build):
        super().__init__("job", logs, None)
        self.endings, self.build, self.submitted = list(endings), build, 0
        self.silent = itertools.repeat(False)

    def answer(self):
        if next(self.silent):
            raise Unanswered("http://head: Connection refused")

    def log(self, number):
        return self.logs / f"ray-{number}.log"

    def submit(self, request):
        self.answer()
        self.submitted += 1
        if self.submitted > len(self.endings):
            self.build()
        return str(self.submitted)

    def find(self):
        self.answer()

    def look(self, status):
        self.answer()

    def cancel(self, status):
        raise AssertionError

    def ending(self, number):
        self.answer()
        return self.endings[int(number) - 1]


class Recorder:
    """Display that records warnings and forgets the rest."""

    def __init__(self):
        self.warnings = []

    def warn(self, stage, text):
        self.warnings.append(text)

    def __getattr__(self, name):
        return lambda *_: None


@pytest.fixture
def follow(monkeypatch, tmp_path):
    """Function that builds fetch with jobs that end as a list says; returns the queue and the warnings."""
    monkeypatch.chdir(tmp_path)
    for name in ("POLL_S", "LONGEST_POLL_S", "PATIENCE_S"):
        monkeypatch.setattr(stage_job, name, 0.01)
    plan, store = prepare_plan(["store=s"])
    spec = plan.spec("fetch")
    logs = store.log_dir(spec.key).absolute()

    def run(*endings, silent=()):
        queue = Scripted(logs, endings, lambda: commit_spec(store, spec, {"result.json": "{}"}))
        queue.silent = itertools.chain(silent, itertools.repeat(False))
        monkeypatch.setattr(stage_job, "queue_of", lambda *_: queue)
        job = stage_job.Job("fetch", spec.key.fingerprint, (), None, "run", None)
        display = Recorder()
        assert stage_job.build_as_job(spec, store, job, plan.config, display)
        return queue.submitted, display.warnings

    return run


def test_a_job_that_never_began_is_submitted_again_as_often_as_needed(follow):
    submitted, warnings = follow(*[WAITED] * 7)
    assert submitted == 8
    assert warnings[0] == "Ray job 1 found no free 8 NPU in 900 s, and Ray ended it; submitted again"
    assert len(warnings) == 7


def test_a_lost_job_is_submitted_again_three_times(follow):
    submitted, warnings = follow(LOST, WAITED, LOST, LOST)
    assert submitted == 5
    assert warnings[0] == "Ray has lost job 1, as after a restart of its head node; submitted again"


def test_a_cluster_that_forgets_every_job_fails_the_stage(follow):
    with pytest.raises(StageFailed, match="Ray job 4: ended, and Ray has forgotten how"):
        follow(*[LOST] * 9)


def test_nothing_is_submitted_while_the_cluster_does_not_answer(follow):
    submitted, warnings = follow(silent=[True] * 3)
    assert submitted == 1
    assert warnings == ["http://head: Connection refused; waiting until it answers"]


@pytest.mark.parametrize("may_pass", [True, False])
def test_a_job_that_fails_is_not_submitted_again(follow, may_pass):
    with pytest.raises(StageFailed, match="Ray job 1: FAILED") as failed:
        follow(Ending("FAILED (exit code 1)", may_pass=may_pass))
    assert failed.value.may_pass == may_pass
