import os
import subprocess
import sys

import numpy as np
import pytest

from pipeline.config.load import load as compose
from stages.grpo import checkpoint
from stages.grpo.checkpoint import Checkpoints, read_set, read_state
from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy
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
    if not out.exists():
        write_strategy(MODEL, compose(LAYOUTS[cards]).layout.train, out / "train_strategy")
    return out


def opened(root, cards=1, rank=0, keep=2, warn=print, **more):
    return Checkpoints(root / "checkpoints", rank, cards, keep, strategies(root, cards), warn, **more)


def sets(step, strategy, rank=0):
    """Return this worker's shards of weights and moments, which differ from step to step."""
    full = {
        name: small.weights(MODEL, seed=step + i) for i, name in enumerate(("weights", "adam_m", "adam_v"))
    }
    return full, {name: slices_of(arrays, strategy, rank) for name, arrays in full.items()}


def save(store, step, best=None, rank=0):
    full, shards = sets(step, read_strategy(store.strategies / "train_strategy"), rank)
    store.save(step, shards, {"updates": 2 * step, "best": {"step": best}}, best)
    return full


@pytest.mark.parametrize("workers", [1, 2])
def test_any_layout_reads_what_workers_write_and_old_ones_go(tmp_path, workers):
    stores = [opened(tmp_path, workers, rank) for rank in range(workers)]
    for step in (1, 2, 3):
        for store in reversed(stores):  # worker 0 completes the checkpoint
            full = save(store, step, rank=store.rank)
    assert stores[-1].steps() == [2, 3] and read_state(stores[0].path(3))["updates"] == 6
    single = opened(tmp_path)
    strategy = read_strategy(single.strategies / "train_strategy")
    for name, arrays in full.items():
        actual = read_set(single.path(3), name, strategy, 0)
        for key, array in arrays.items():
            np.testing.assert_array_equal(actual[key], array)


def test_the_best_checkpoint_is_retained_however_old_and_an_unfinished_one_is_removed(tmp_path):
    store = opened(tmp_path, keep=1)
    for step in (1, 2, 3, 4):
        save(store, step, best=2 if step > 1 else 1)
    half = tmp_path / "checkpoints" / ".step_000005" / "weights" / "rank_0"
    half.mkdir(parents=True)  # killed before the rename
    (half / "model.safetensors").write_bytes(b"half")
    assert opened(tmp_path).steps() == [2, 4] and not half.exists()


def three(root):
    """Checkpoints of steps 1 to 3, and what is warned of."""
    messages = []
    store = opened(root, keep=3, warn=messages.append)
    for step in (1, 2, 3):
        save(store, step, best=1)
    return store, messages


def zero_the_tail(file):
    with file.open("r+b") as stream:
        stream.seek(-64, os.SEEK_END)
        stream.write(bytes(64))


FILES = [f"{name}/rank_0/model.safetensors" for name in ("weights", "adam_m", "adam_v")]
DAMAGE = [
    *[(name, zero_the_tail) for name in FILES],
    (FILES[0], lambda file: os.truncate(file, 100)),
    *[(name, os.unlink) for name in (FILES[1], "state.json", "train_strategy/merged_ckpt_strategy.ckpt")],
    ("state.json", lambda file: file.write_text("{}")),
]


@pytest.mark.parametrize(("name", "damage"), DAMAGE)
def test_training_resumes_from_the_previous_checkpoint_if_the_newest_is_damaged(tmp_path, name, damage):
    store, messages = three(tmp_path)
    assert store.newest() == 3 and messages == []
    damage(store.path(3) / name)
    assert store.newest() == 2
    assert store.steps() == [1, 2]  # so that step 3 can be written again
    if (tmp_path / "checkpoints/unusable_step_000003/state.json").exists():
        assert "step_000003 is damaged: " in messages[0] and messages[1] == "going on from step 2"


def test_a_damaged_best_checkpoint_counts_only_if_it_will_be_the_result(tmp_path):
    store, messages = three(tmp_path)
    zero_the_tail(store.path(1) / FILES[0])
    assert store.newest() == 3
    assert store.newest(with_best=True) is None  # all three were written after it
    assert "step_000001 is damaged: weights" in messages[0]
    assert ["step_000002 is unusable" in message for message in messages] == [False, True, False, False]
    assert messages[-1] == "beginning with the first step"


def test_a_kill_during_removal_leaves_no_partial_checkpoint(tmp_path, monkeypatch):
    def killed(path, **options):
        next(path.rglob("model.safetensors")).unlink()
        raise KeyboardInterrupt

    store = opened(tmp_path, keep=1)
    save(store, 1)
    monkeypatch.setattr(checkpoint.shutil, "rmtree", lambda path, **options: path.exists() and killed(path))
    with pytest.raises(KeyboardInterrupt):
        save(store, 2)
    monkeypatch.undo()
    again = opened(tmp_path)
    assert again.newest() == 2
    assert [path.name for path in again.directory.iterdir()] == ["step_000002"]


def test_the_plan_reads_checkpoints_without_numpy_and_mindspore():
    program = "import sys, stages.grpo.checkpoint; sys.exit(len({'numpy', 'mindspore'} & {*sys.modules}))"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
