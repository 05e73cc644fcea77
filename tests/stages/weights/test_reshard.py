"""reshard A→B is split under B, for parameters and optimizer states; MindSpore's transform agrees."""

import itertools

import numpy as np
import pytest

from stages.base.errors import InputError
from stages.weights.split import reshard_directory, split_directory
from stages.weights.strategy.stage import write_strategy
from tests.stages.weights.checkpoints import make_layout, make_model, read_bits, write_hf, write_safetensors

OPTIMIZER = {"enable_parallel_optimizer": True, "parallel_optimizer_threshold_kb": 0}
LAYOUTS = {
    "mp2": {"model_parallel": 2},
    "dp2_mp4_opt": {"data_parallel": 2, "model_parallel": 4, **OPTIMIZER},
    "mp2_pp2_offset": {"model_parallel": 2, "pipeline_stage": 2, "offset": (1, -1)},
    "dp2_cp2_opt": {"data_parallel": 2, "context_parallel": 2, **OPTIMIZER},
    "one": {},
}


def _files(root):
    return {str(file.relative_to(root)): file.read_bytes() for file in sorted(root.rglob("*.safetensors"))}


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_reshard_is_split_under_the_other_layout(tmp_path, dtype):
    model = make_model(torch_dtype=dtype)
    write_hf(tmp_path / "hf", model)
    for name, layout in LAYOUTS.items():
        write_strategy(model, make_layout(**layout), tmp_path / name)
        split_directory(tmp_path / "hf", tmp_path / name, tmp_path / f"ranks_{name}")
    for first, second in itertools.permutations(LAYOUTS, 2):
        out = tmp_path / f"{first}_to_{second}"
        reshard_directory(tmp_path / f"ranks_{first}", tmp_path / first, tmp_path / second, out)
        assert _files(out) == _files(tmp_path / f"ranks_{second}")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("mp2", "dp2_mp4_opt"),
        ("dp2_mp4_opt", "mp2"),
        ("dp2_cp2_opt", "dp2_mp4_opt"),
        ("mp2_pp2_offset", "mp2"),
    ],
)
def test_reshard_equals_mindspore(tmp_path, transform_checkpoints, first, second):
    model = make_model()
    write_hf(tmp_path / "hf", model)
    for name in (first, second):
        write_strategy(model, make_layout(**LAYOUTS[name]), tmp_path / name)
    split_directory(tmp_path / "hf", tmp_path / first, tmp_path / "ranks")
    reshard_directory(tmp_path / "ranks", tmp_path / first, tmp_path / second, tmp_path / "ours")
    merged = [str(tmp_path / name / "merged_ckpt_strategy.ckpt") for name in (first, second)]
    theirs = tmp_path / "theirs"
    transform_checkpoints(str(tmp_path / "ranks"), str(theirs), "t", *merged, output_format="safetensors")
    for rank in range(make_layout(**LAYOUTS[second]).cards):
        ours = read_bits(tmp_path / "ours" / f"rank_{rank}" / "model.safetensors")
        other = read_bits(theirs / f"rank_{rank}" / f"t{rank}.safetensors")
        assert ours.keys() == other.keys()
        for name, array in ours.items():
            np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_optimizer_states_lie_as_their_parameters(tmp_path):
    """A checkpoint with Adam's moments and a step counter, and one with nothing else."""
    model = make_model(torch_dtype="float32")
    write_hf(tmp_path / "hf", model)
    for name in ("mp2", "dp2_mp4_opt"):
        write_strategy(model, make_layout(**LAYOUTS[name]), tmp_path / name)
        split_directory(tmp_path / "hf", tmp_path / name, tmp_path / f"ranks_{name}")
    for with_weights in (True, False):
        for name in ("mp2", "dp2_mp4_opt"):
            for rank in (tmp_path / f"ranks_{name}").iterdir():
                own = read_bits(rank / "model.safetensors")
                states = {f"adam_m.{key}": array ^ 1 for key, array in own.items()}
                states |= {f"adam_v.{key}": array ^ 2 for key, array in own.items()}
                states["global_step"] = np.array([5], np.uint32)
                folder = tmp_path / f"states_{with_weights}_{name}" / rank.name
                write_safetensors(
                    folder / "optimizer.safetensors", states | (own if with_weights else {}), "float32"
                )
        out, target = tmp_path / f"out_{with_weights}", tmp_path / f"states_{with_weights}_dp2_mp4_opt"
        reshard_directory(
            tmp_path / f"states_{with_weights}_mp2", tmp_path / "mp2", tmp_path / "dp2_mp4_opt", out
        )
        for rank in target.iterdir():
            expected = read_bits(rank / "optimizer.safetensors")
            found = read_bits(out / rank.name / "model.safetensors")
            assert found.keys() == expected.keys()
            for key, array in expected.items():
                np.testing.assert_array_equal(found[key], array)


def test_rank_directories_as_mindrlhf_saves_them(tmp_path):
    """Its prefixes and file names; of several checkpoints the newest step counts, not the last name."""
    model = make_model()
    write_hf(tmp_path / "hf", model)
    role = make_layout(model_parallel=2)
    write_strategy(model, role, tmp_path / "plain")
    write_strategy(model, role, tmp_path / "prefixed", role="train")
    split_directory(tmp_path / "hf", tmp_path / "plain", tmp_path / "ranks")
    for rank in range(2):
        own = read_bits(tmp_path / "ranks" / f"rank_{rank}" / "model.safetensors")
        own = {f"grpo_model_train.policy_model.model.{name}": array for name, array in own.items()}
        folder = tmp_path / "saved" / f"rank_{rank}"
        write_safetensors(folder / f"policy_model_rank_{rank}-1_10.safetensors", own, "bfloat16")
        stale = {name: array ^ 1 for name, array in own.items()}
        write_safetensors(folder / f"policy_model_rank_{rank}-1_9.safetensors", stale, "bfloat16")
    for strategy in ("plain", "prefixed"):
        out = tmp_path / f"out_{strategy}"
        reshard_directory(tmp_path / "saved", tmp_path / strategy, tmp_path / "plain", out)
        for rank in range(2):
            found = read_bits(out / f"rank_{rank}" / "model.safetensors")
            expected = read_bits(tmp_path / "ranks" / f"rank_{rank}" / "model.safetensors")
            assert found.keys() == expected.keys()
            assert all(np.array_equal(found[name], expected[name]) for name in expected)


def test_wrong_source_strategy(tmp_path):
    model = make_model()
    write_hf(tmp_path / "hf", model)
    for name in ("mp2", "dp2_mp4_opt", "one"):
        write_strategy(model, make_layout(**LAYOUTS[name]), tmp_path / name)
    split_directory(tmp_path / "hf", tmp_path / "dp2_mp4_opt", tmp_path / "ranks")
    with pytest.raises(InputError, match="the strategy has 2 ranks"):
        reshard_directory(tmp_path / "ranks", tmp_path / "mp2", tmp_path / "one", tmp_path / "out")
    assert not (tmp_path / "out").exists()
