"""Checkpoints of MindSpeed-RL and verl: which are complete, and what a killed run resumes from."""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.config.load import load
from stages.base.errors import InputError
from stages.engines.mindspeed_rl import results as megatron
from stages.engines.tracked_checkpoints import TrackedCheckpoints
from stages.engines.verl import results as verl
from stages.engines.verl.job import Job
from tests.stages.engines.mindspeed_rl.jobs import job_of, save_checkpoint, write_archive

LAYOUT = job_of("model=qwen2_5_7b", "layout=dp1_mp2_pp2").layout.train
RANKS = ("mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001")
TINY = load(["engine=verl", "engine.device=cpu", "model=tiny_qwen3", "layout=dp2_mp1_pp1"])


@dataclass(frozen=True)
class Program:
    """One program's checkpoints."""

    of_run: Callable[[Path], TrackedCheckpoints]
    files: tuple[str, ...]
    """Files of a step: weights of the first rank first, what is written last at the end."""
    extra: str
    """A file that only a run of more workers writes."""


PROGRAMS = {
    "mindspeed_rl": Program(
        lambda root: megatron.checkpoints_of_run(root, LAYOUT),
        tuple(f"{rank}/{name}" for name in ("model_optim_rng.pt", "distrib_optim.pt") for rank in RANKS),
        "mp_rank_02_000/model_optim_rng.pt",
    ),
    "verl": Program(
        lambda root: verl.checkpoints(root, Job.from_run(TINY)),
        (*(f"actor/{part}_world_size_2_rank_{rank}.pt" for part in verl.PARTS for rank in (0, 1)), "data.pt"),
        "actor/model_world_size_1_rank_0.pt",
    ),
}


@pytest.fixture(params=PROGRAMS)
def program(request):
    return PROGRAMS[request.param]


@pytest.fixture
def saved(program, tmp_path):
    """Checkpoints of steps 2 and 10."""
    saved = program.of_run(tmp_path / "checkpoints")
    for step in (2, 10):
        save(program, saved, step)
    return saved


def save(program, saved, step, files=None):
    for name in files or program.files:
        write_archive(saved.directory(step) / name, step)
    saved.tracker.write_text(str(step))


def test_a_run_resumes_from_the_step_in_the_tracker_up_to_the_last_that_it_may(saved):
    assert saved.prepare_resume(last=11) == 10 and saved.steps() == [2, 10]
    assert saved.prepare_resume(last=9) == 2 and saved.steps() == [2] and saved.tracked() == 2


@pytest.mark.parametrize("file", [0, 1, -2, -1])
@pytest.mark.parametrize("damage", ["truncated", "absent", "empty"])
def test_an_incomplete_step_is_removed_and_the_previous_step_is_used(program, saved, damage, file):
    victim = saved.directory(10) / program.files[file]
    if damage == "absent" or victim.name == "data.pt":  # which verl writes last
        victim.unlink()
    else:
        os.truncate(victim, victim.stat().st_size // 2 if damage == "truncated" else 0)
    assert saved.prepare_resume(last=11) == 2
    assert saved.steps() == [2] and saved.tracked() == 2


@pytest.mark.parametrize("kill", ["after the files", "in the tracker", "before the files"])
def test_a_kill_around_the_tracker_leaves_a_complete_step(saved, kill):
    if kill == "before the files":
        shutil.rmtree(saved.directory(10))
    saved.tracker.write_text({"after the files": "2"}.get(kill, ""))
    expected = 10 if kill == "in the tracker" else 2
    assert saved.prepare_resume(last=11) == saved.tracked() == expected
    assert max(saved.steps()) == expected


def test_without_a_complete_step_the_run_starts_from_the_beginning(program, tmp_path):
    saved = program.of_run(tmp_path / "checkpoints")
    assert saved.prepare_resume(last=9) is None
    save(program, saved, 2, program.files[:3])
    assert saved.prepare_resume(last=9) is None
    assert not saved.root.exists()  # the program would load what the tracker names


def test_a_checkpoint_of_another_number_of_workers_is_named(program, saved):
    write_archive(saved.directory(10) / program.extra, 10)
    if program is PROGRAMS["verl"]:
        (saved.directory(10) / program.files[0]).unlink()
    name = program.extra.removeprefix("actor/").partition("/")[0]
    assert name in saved.defect(saved.directory(10))


def test_prune_keeps_the_newest_finished_steps_and_later_ones(program, saved):
    save(program, saved, 12, program.files[:1])  # being written
    saved.tracker.write_text("10")
    saved.prune(keep=1)
    assert saved.steps() == [10, 12]


def test_a_conversion_with_different_degrees_is_refused(tmp_path):
    save_checkpoint(tmp_path, 1, ["mp_rank_00", "mp_rank_01"], optimizer=False)
    with pytest.raises(InputError, match="checkpoint of dp1_mp2_pp2: mp_rank_00_000/model"):
        megatron.converted(tmp_path, LAYOUT)
