"""reshard A→B is split under B, which equals MindSpore's transform, for parameters and optimizer states."""

import itertools

import numpy as np
import pytest

from stages.weights.split import reshard_directory, split_directory
from stages.weights.strategy.stage import write_strategy
from tests.stages.weights.checkpoints import (
    assert_same,
    make_layout,
    make_model,
    read_bits,
    write_ranks_of,
    write_safetensors,
)

OPTIMIZER = {"enable_parallel_optimizer": True, "parallel_optimizer_threshold_kb": 0}
LAYOUTS = {
    "mp2": {"model_parallel": 2}, "dp2_mp4_opt": {"data_parallel": 2, "model_parallel": 4, **OPTIMIZER},
    "mp2_pp2_offset": {"model_parallel": 2, "pipeline_stage": 2, "offset": (1, -1)},
    "dp2_cp2_opt": {"data_parallel": 2, "context_parallel": 2, **OPTIMIZER}, "one": {},
}  # fmt: skip


def _ranks(directory):
    return {file.parent.name: read_bits(file) for file in sorted(directory.rglob("*.safetensors"))}


def _assert_same_ranks(actual, expected):
    assert _ranks(actual).keys() == _ranks(expected).keys()
    for rank, bits in _ranks(expected).items():
        assert_same(_ranks(actual)[rank], bits)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_reshard_equals_split_under_the_target_layout(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr("stages.weights.transfer.CHUNK_BYTES", 500)
    model = make_model(torch_dtype=dtype)
    for name, layout in LAYOUTS.items():
        write_ranks_of(tmp_path / name, model, **layout)
    for first, second in itertools.permutations(LAYOUTS, 2):
        source, target, out = tmp_path / first, tmp_path / second, tmp_path / f"{first}_to_{second}"
        reshard_directory(source / "ranks", source / "strategy", target / "strategy", out)
        _assert_same_ranks(out, target / "ranks")


@pytest.mark.parametrize("with_weights", [True, False])
def test_optimizer_states_are_sharded_as_their_parameters(tmp_path, with_weights):
    """A checkpoint with Adam's moments and a step counter, with and without the weights."""
    for name in ("mp2", "dp2_mp4_opt"):
        write_ranks_of(tmp_path / name, make_model(torch_dtype="float32"), **LAYOUTS[name])
        for rank, weights in _ranks(tmp_path / name / "ranks").items():
            states = {f"adam_m.{key}": array ^ 1 for key, array in weights.items()}
            states |= {f"adam_v.{key}": array ^ 2 for key, array in weights.items()}
            states["global_step"] = np.array([5], np.uint32)
            file = tmp_path / name / "states" / rank / "optimizer.safetensors"
            write_safetensors(file, states | (weights if with_weights else {}), "float32")
    source, target = tmp_path / "mp2", tmp_path / "dp2_mp4_opt"
    reshard_directory(source / "states", source / "strategy", target / "strategy", tmp_path / "out")
    _assert_same_ranks(tmp_path / "out", target / "states")


@pytest.mark.parametrize("role", [None, "train", "generate", "reference"])
def test_rank_directories_as_mindrlhf_saves_them(tmp_path, role):
    """Names are mindrlhf's; the newest of several checkpoints is read, not the last by name."""
    model = make_model()
    write_ranks_of(tmp_path, model, model_parallel=2)
    write_strategy(model, make_layout(model_parallel=2), tmp_path / "saved_strategy", role=role)
    for rank, bits in _ranks(tmp_path / "ranks").items():
        saved = {f"grpo_model_train.policy_model.model.{name}": array for name, array in bits.items()}
        stale = {name: array ^ 1 for name, array in saved.items()}
        for content, number in ((saved, "1_10"), (stale, "1_9"), (stale, "0_99")):  # epoch and step
            file = tmp_path / "saved" / rank / f"policy_model_{rank}-{number}.safetensors"
            write_safetensors(file, content, "bfloat16")
    reshard_directory(
        tmp_path / "saved", tmp_path / "saved_strategy", tmp_path / "strategy", tmp_path / "out"
    )
    _assert_same_ranks(tmp_path / "out", tmp_path / "ranks")
    split_directory(tmp_path / "hf", tmp_path / "saved_strategy", tmp_path / "split")
    _assert_same_ranks(tmp_path / "split", tmp_path / "ranks")
