import os
import shutil

import pytest

from stages.base.errors import InputError
from stages.engines.mindspeed_rl import checkpoints
from stages.engines.mindspeed_rl.checkpoints import of_run
from stages.engines.tracked_checkpoints import TRACKER
from tests.stages.engines.mindspeed_rl.jobs import job_of, save_checkpoint

LAYOUT = job_of("model=qwen2_5_7b", "layout=dp1_mp2_pp2").actor
RANKS = ("mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001")


def iterations(root):
    return sorted(path.name for path in root.glob("iter_*"))


def test_rank_directories_have_megatrons_names():
    assert sorted(checkpoints.ranks(LAYOUT)) == sorted(RANKS)
    flat = job_of("model=qwen2_5_7b", "layout=dp4_mp4_pp1").actor
    assert checkpoints.ranks(flat) == ["mp_rank_00", "mp_rank_01", "mp_rank_02", "mp_rank_03"]


def test_a_run_resumes_from_the_iteration_in_the_tracker(tmp_path):
    for iteration in (2, 4):
        save_checkpoint(tmp_path, iteration, RANKS)
    assert of_run(tmp_path, LAYOUT).prepare_resume(last=9) == 4
    assert iterations(tmp_path) == ["iter_0000002", "iter_0000004"]


@pytest.mark.parametrize(
    "damage", ["truncated", "absent", "empty", "no optimizer", "tracker truncated", "not in the tracker"]
)
def test_an_incomplete_iteration_is_removed_and_the_previous_iteration_is_used(tmp_path, damage):
    save_checkpoint(tmp_path, 2, RANKS)
    directory = save_checkpoint(tmp_path, 10, RANKS, tracker=damage != "not in the tracker")
    victim = directory / RANKS[2] / "model_optim_rng.pt"
    if damage == "truncated":
        os.truncate(victim, victim.stat().st_size // 2)
    elif damage == "absent":
        victim.unlink()
    elif damage == "empty":
        victim.write_bytes(b"")
    elif damage == "no optimizer":
        (directory / RANKS[0] / "distrib_optim.pt").unlink()
    elif damage == "tracker truncated":
        shutil.rmtree(directory)
        (tmp_path / TRACKER).write_text("")
    assert of_run(tmp_path, LAYOUT).prepare_resume(last=10) == 2
    assert iterations(tmp_path) == ["iter_0000002"] and (tmp_path / TRACKER).read_text() == "2"


def test_without_a_complete_iteration_the_run_starts_from_the_beginning(tmp_path):
    root = tmp_path / "checkpoints"
    assert of_run(root, LAYOUT).prepare_resume(last=9) is None
    save_checkpoint(root, 2, RANKS[:3])
    assert of_run(root, LAYOUT).prepare_resume(last=9) is None
    assert not root.exists()  # Megatron would load what the tracker names


def test_a_checkpoint_of_another_layout_is_incomplete(tmp_path):
    directory = save_checkpoint(tmp_path, 2, [*RANKS, "mp_rank_02_000"])
    assert "mp_rank_02_000" in (of_run(tmp_path, LAYOUT).defect(directory) or "")


def test_prune_keeps_the_newest_finished_iterations_and_later_ones(tmp_path):
    for iteration in (2, 4, 6):
        save_checkpoint(tmp_path, iteration, RANKS)
    save_checkpoint(tmp_path, 8, RANKS[:1], tracker=False)  # being written
    of_run(tmp_path, LAYOUT).prune(keep=2)
    assert iterations(tmp_path) == ["iter_0000004", "iter_0000006", "iter_0000008"]
    of_run(tmp_path / "absent", LAYOUT).prune(keep=1)


def test_a_converters_result_is_located_by_its_tracker_and_imported(tmp_path):
    save_checkpoint(tmp_path / "mcore", 1, RANKS, optimizer=False)
    directory, target = checkpoints.converted(tmp_path / "mcore", LAYOUT), tmp_path / "artifact"
    checkpoints.import_weights(directory, target, LAYOUT)
    assert (target / TRACKER).read_text() == "1"
    for rank in RANKS:
        actual, reference = (
            root / rank / "model_optim_rng.pt" for root in (target / directory.name, directory)
        )
        assert actual.read_bytes() == reference.read_bytes()


def test_a_conversion_with_different_degrees_is_refused(tmp_path):
    save_checkpoint(tmp_path, 1, ["mp_rank_00", "mp_rank_01"], optimizer=False)
    with pytest.raises(InputError, match="checkpoint of dp1_mp2_pp2: mp_rank_00_000/model"):
        checkpoints.converted(tmp_path, LAYOUT)
    (tmp_path / TRACKER).unlink()
    with pytest.raises(InputError, match="must name what the converter wrote"):
        checkpoints.converted(tmp_path, LAYOUT)
