import numpy as np
import pytest

from pipeline.config import load as compose
from stages.errors import InputError
from stages.grpo.checkpoint import Checkpoints, read_set, read_state
from stages.strategy.files import read_strategy
from stages.strategy.stage import write_strategy
from stages.weights.tensors import slices_of
from tests.stages.grpo import small

MODEL = small.model_config()
LAYOUTS = {
    1: ["layout.train.model_parallel=1", "layout.generate.data_parallel=1"],
    2: ["layout.train.model_parallel=2"],
}


def strategies(root, cards):
    """A run's strategy directory for one card, or for two that share every matrix."""
    out = root / f"strategies_{cards}"
    write_strategy(MODEL, compose(LAYOUTS[cards]).layout.train, out / "train_strategy")
    return out


def opened(root, cards=1, rank=0, keep=2):
    return Checkpoints(root / "checkpoints", rank, cards, keep, strategies(root, cards), barrier=lambda: None)


def sets(step, strategy, rank=0):
    """This worker's share of weights and moments that differ from step to step."""
    full = {
        name: small.weights(MODEL, seed=step + i) for i, name in enumerate(("weights", "adam_m", "adam_v"))
    }
    return full, {name: slices_of(arrays, strategy, rank) for name, arrays in full.items()}


def save(store, step, best=None, rank=0):
    full, own = sets(step, read_strategy(store.strategies / "train_strategy"), rank)
    store.save(step, own, {"updates": 2 * step}, best)
    return full


def test_comes_back_as_it_was_and_old_ones_go(tmp_path):
    store = opened(tmp_path)
    for step in (1, 2, 3):
        full = save(store, step)
    store.wait()
    assert store.steps() == [2, 3] and read_state(store.path(3))["updates"] == 6
    strategy = read_strategy(store.strategies / "train_strategy")
    for name, arrays in full.items():
        found = read_set(store.path(3), name, strategy, 0)
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[key], array)


def test_the_best_stays_however_old(tmp_path):
    store = opened(tmp_path, keep=1)
    for step in (1, 2, 3, 4):
        save(store, step, best=2 if step > 1 else 1)
    store.wait()
    assert store.steps() == [2, 4]


def test_later_changes_of_the_arrays_are_not_saved(tmp_path):
    store = opened(tmp_path)
    _, own = sets(1, read_strategy(store.strategies / "train_strategy"))
    array = own["weights"]["model.norm_out.weight"]
    wanted = array.copy()
    store.save(1, own, {}, None)
    array += 1  # training goes on while the file is written
    store.wait()
    found = read_set(store.path(1), "weights", read_strategy(store.strategies / "train_strategy"), 0)
    np.testing.assert_array_equal(found["model.norm_out.weight"], wanted)


def test_two_workers_write_and_any_layout_reads(tmp_path):
    both = [opened(tmp_path, 2, rank) for rank in (0, 1)]
    for store in both:
        full = save(store, 5, rank=store.rank)
    for store in both:
        store.wait()
    assert both[1].steps() == [5]
    one = opened(tmp_path, 1)
    found = read_set(one.path(5), "adam_v", read_strategy(one.strategies / "train_strategy"), 0)
    for key, array in full["adam_v"].items():
        np.testing.assert_array_equal(found[key], array)


def test_an_unfinished_one_does_not_count_and_goes(tmp_path):
    store = opened(tmp_path)
    save(store, 1)
    store.wait()
    half = tmp_path / "checkpoints" / ".step_000002" / "weights" / "rank_0"
    half.mkdir(parents=True)  # killed before the rename
    (half / "model.safetensors").write_bytes(b"half")
    again = opened(tmp_path)
    assert again.steps() == [1] and not half.exists()


def test_a_damaged_file_is_named(tmp_path):
    store = opened(tmp_path)
    save(store, 1)
    store.wait()
    (store.path(1) / "weights" / "rank_0" / "model.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"rank_0"):
        read_set(store.path(1), "weights", read_strategy(store.strategies / "train_strategy"), 0)
    (store.path(1) / "state.json").write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match=r"state\.json"):
        read_state(store.path(1))


def test_a_failed_write_is_told_at_the_next_chance(tmp_path):
    store = opened(tmp_path)
    save(store, 1)
    store.wait()
    (store.path(2).with_name(".step_000002")).write_text("in the way", encoding="utf-8")
    save(store, 2)
    with pytest.raises(OSError, match="step_000002"):
        store.wait()


def test_a_worker_that_fails_waits_for_no_other_ones_checkpoint(tmp_path):
    store = opened(tmp_path, cards=2)
    save(store, 1)  # the other worker's disk is full: its mark never comes
    store.abandon()
    store._writer.shutdown(wait=True)  # what Python does at the end of the process
    assert store.steps() == []
