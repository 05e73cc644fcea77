import os
import shutil

import pytest

from stages.base.errors import InputError
from stages.engines.mindspeed_rl import checkpoints
from stages.engines.mindspeed_rl.checkpoints import TRACKER, prepare_resume, prune
from tests.stages.engines.mindspeed_rl.jobs import job_of, save_checkpoint

PIPED = job_of("model=qwen2_5_7b", "layout=dp1_mp2_pp2").actor
RANKS = ("mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001")


def found(root):
    return sorted(path.name for path in root.glob("iter_*"))


def test_directories_are_named_as_megatron_names_them():
    assert sorted(checkpoints.ranks(PIPED)) == sorted(RANKS)
    flat = job_of("model=qwen2_5_7b", "layout=dp4_mp4_pp1").actor
    assert checkpoints.ranks(flat) == ["mp_rank_00", "mp_rank_01", "mp_rank_02", "mp_rank_03"]


def test_a_run_goes_on_from_what_the_tracker_names(tmp_path):
    for iteration in (2, 4):
        save_checkpoint(tmp_path, iteration, RANKS)
    assert prepare_resume(tmp_path, PIPED, optimizer=True) == 4
    assert found(tmp_path) == ["iter_0000002", "iter_0000004"]


def test_an_iteration_that_was_never_declared_goes(tmp_path):
    save_checkpoint(tmp_path, 2, RANKS)
    save_checkpoint(tmp_path, 4, RANKS, tracker=False)
    assert prepare_resume(tmp_path, PIPED, optimizer=True) == 2
    assert found(tmp_path) == ["iter_0000002"] and (tmp_path / TRACKER).read_text() == "2"


@pytest.mark.parametrize("damage", ["cut", "absent", "empty", "no optimizer", "tracker cut"])
def test_a_damaged_iteration_goes_and_the_one_before_serves(tmp_path, damage):
    save_checkpoint(tmp_path, 2, RANKS)
    place = save_checkpoint(tmp_path, 10, RANKS)
    victim = place / RANKS[2] / "model_optim_rng.pt"
    if damage == "cut":
        os.truncate(victim, victim.stat().st_size // 2)
    elif damage == "absent":
        victim.unlink()
    elif damage == "empty":
        victim.write_bytes(b"")
    elif damage == "no optimizer":
        (place / RANKS[0] / "distrib_optim.pt").unlink()
    else:
        shutil.rmtree(place)
        (tmp_path / TRACKER).write_text("")
    assert prepare_resume(tmp_path, PIPED, optimizer=True) == 2
    assert found(tmp_path) == ["iter_0000002"] and (tmp_path / TRACKER).read_text() == "2"


def test_without_a_whole_iteration_the_run_begins_anew(tmp_path):
    root = tmp_path / "checkpoints"
    assert prepare_resume(root, PIPED, optimizer=True) is None
    save_checkpoint(root, 2, RANKS[:3])
    assert prepare_resume(root, PIPED, optimizer=True) is None
    assert not root.exists()  # Megatron would load what the tracker names


def test_another_layouts_checkpoint_is_none_of_this_run(tmp_path):
    place = save_checkpoint(tmp_path, 2, [*RANKS, "mp_rank_02_000"])
    assert checkpoints.flaw(place, PIPED, optimizer=True) == "it was cut for another layout: mp_rank_02_000"


def test_old_iterations_go_and_the_declared_one_stays(tmp_path):
    for iteration in (2, 4, 6):
        save_checkpoint(tmp_path, iteration, RANKS)
    save_checkpoint(tmp_path, 8, RANKS[:1], tracker=False)  # under way
    prune(tmp_path, keep=2)
    assert found(tmp_path) == ["iter_0000004", "iter_0000006", "iter_0000008"]
    prune(tmp_path / "absent", keep=1)


@pytest.mark.parametrize("said", ["1", "release"])
def test_a_converters_result_is_found_by_its_tracker_and_comes_home(tmp_path, said):
    made = save_checkpoint(tmp_path / "mcore", 1, RANKS, optimizer=False)
    if said == "release":
        made.rename(tmp_path / "mcore" / "release")
        (tmp_path / "mcore" / TRACKER).write_text("release")
    place = checkpoints.converted(tmp_path / "mcore", PIPED)
    home = tmp_path / "home"
    checkpoints.bring_home(place, home, PIPED)
    assert (home / TRACKER).read_text() == said
    for rank in RANKS:
        ours, theirs = (root / rank / "model_optim_rng.pt" for root in (home / place.name, place))
        assert ours.read_bytes() == theirs.read_bytes()


def test_a_conversion_for_other_degrees_is_refused(tmp_path):
    save_checkpoint(tmp_path, 1, ["mp_rank_00", "mp_rank_01"], optimizer=False)
    with pytest.raises(InputError, match="no whole mcore checkpoint of dp1_mp2_pp2: mp_rank_00_000/model"):
        checkpoints.converted(tmp_path, PIPED)
    (tmp_path / TRACKER).unlink()
    with pytest.raises(InputError, match="must name what the converter wrote"):
        checkpoints.converted(tmp_path, PIPED)
