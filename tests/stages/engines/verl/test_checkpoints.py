import os

import pytest

from pipeline.config.load import load
from stages.engines.verl.checkpoints import of_run
from stages.engines.verl.job import Job
from tests.stages.engines.mindspeed_rl.jobs import write_archive

FILES = tuple(
    f"actor/{part}_world_size_2_rank_{rank}.pt"
    for part in ("model", "optim", "extra_state")
    for rank in (0, 1)
)


@pytest.fixture(scope="module")
def job():
    return Job.from_run(load(["engine=verl", "engine.device=cpu", "model=tiny_qwen3", "layout=dp2_mp1_pp1"]))


def save_step(root, step, files=(*FILES, "data.pt")):
    for name in files:
        write_archive(root / f"global_step_{step}" / name, step)


def names(root):
    return sorted(path.name for path in root.glob("global_step_*"))


@pytest.mark.parametrize("file", [FILES[1], FILES[4], "data.pt"])
def test_a_step_with_a_missing_file_is_removed_and_the_one_before_is_used(tmp_path, job, file):
    save_step(tmp_path, 1)
    save_step(tmp_path, 2)
    saved = of_run(tmp_path, job)
    saved.tracker.write_text("2")
    (tmp_path / "global_step_2" / file).unlink()
    assert saved.prepare_resume(last=4) == 1
    assert names(tmp_path) == ["global_step_1"] and saved.tracked() == 1


def test_a_truncated_shard_is_incomplete(tmp_path, job):
    save_step(tmp_path, 3)
    saved, file = of_run(tmp_path, job), tmp_path / "global_step_3" / FILES[0]
    assert saved.defect(saved.directory(3)) is None
    os.truncate(file, file.stat().st_size // 2)
    assert saved.defect(saved.directory(3)) == f"{file.name} is truncated"


def test_a_checkpoint_of_another_number_of_workers_names_what_was_saved(tmp_path, job):
    save_step(tmp_path, 3, ["actor/model_world_size_1_rank_0.pt", "data.pt"])
    saved = of_run(tmp_path, job)
    assert "model_world_size_1_rank_0.pt" in saved.defect(saved.directory(3))


def test_a_complete_step_is_used_although_the_kill_left_an_empty_tracker(tmp_path, job):
    save_step(tmp_path, 1)
    saved = of_run(tmp_path, job)
    saved.tracker.write_text("")
    assert saved.prepare_resume(last=4) == 1
    assert saved.tracked() == 1
