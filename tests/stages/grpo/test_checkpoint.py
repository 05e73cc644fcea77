import numpy as np
import pytest

from stages.errors import InputError
from stages.grpo.checkpoint import Checkpoints


def arrays(step):
    return {"weight": np.full((2, 3), step, np.float32), "adam_m": np.arange(4, dtype=np.float32)}


def checkpoints(directory, world=1, keep=2):
    return Checkpoints(directory, 0, world, keep, barrier=lambda: None)


def test_comes_back_as_it_was_and_old_ones_go(tmp_path):
    store = checkpoints(tmp_path / "checkpoints")
    for step in (1, 2, 3):
        store.save(step, arrays(step), {"updates": 2 * step})
    assert store.steps() == [2, 3]
    found, state = store.restore(3)
    assert state["updates"] == 6
    for name, array in arrays(3).items():
        np.testing.assert_array_equal(found[name], array)


def test_an_unfinished_one_does_not_count(tmp_path):
    store = checkpoints(tmp_path)
    store.save(1, arrays(1), {"updates": 1})
    (tmp_path / ".step_000002").mkdir()  # killed before the rename
    (tmp_path / ".step_000002" / "rank_0.safetensors").write_bytes(b"half")
    assert store.steps() == [1]
    store.save(2, arrays(2), {"updates": 2})
    np.testing.assert_array_equal(store.restore(2)[0]["weight"], arrays(2)["weight"])


def test_of_another_number_of_workers_is_not_offered(tmp_path):
    checkpoints(tmp_path).save(1, arrays(1), {"updates": 1})
    assert checkpoints(tmp_path, world=2).steps() == []


def test_a_damaged_file_is_named(tmp_path):
    store = checkpoints(tmp_path)
    store.save(1, arrays(1), {"updates": 1})
    (tmp_path / "step_000001" / "rank_0.safetensors").write_bytes(b"damaged")
    with pytest.raises(InputError, match=r"rank_0\.safetensors"):
        store.restore(1)
