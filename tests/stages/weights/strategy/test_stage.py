"""Strategy files equal MindSpore's own, field by field, in our reader's eyes and in MindSpore's."""

import subprocess
import sys

import pytest

from stages.base.errors import InputError
from stages.weights.strategy.files import read_strategy
from stages.weights.strategy.stage import write_strategy
from tests.stages.weights.checkpoints import make_layout, make_model
from tests.stages.weights.strategy.golden import RAW, cases, fields, load


def test_there_are_golden_cases():
    assert len(cases()) >= 10


@pytest.mark.parametrize("file", cases(), ids=lambda file: file.stem)
def test_golden_by_our_reader(file, tmp_path):
    model, layout, expected = load(file)
    write_strategy(model, layout, tmp_path)
    assert fields(read_strategy(tmp_path / "merged_ckpt_strategy.ckpt")) == expected
    (tmp_path / "merged_ckpt_strategy.ckpt").unlink()
    assert fields(read_strategy(tmp_path)) == expected


@pytest.mark.parametrize("file", cases(), ids=lambda file: file.stem)
def test_golden_by_mindspore(file, tmp_path):
    serialization = pytest.importorskip("mindspore.parallel._parallel_serialization")
    model, layout, expected = load(file)
    write_strategy(model, layout, tmp_path)
    cards = layout.cards // layout.pipeline_stage
    for stage, parameters in expected.items():
        rank_file = tmp_path / f"ckpt_strategy_rank_{int(stage) * cards}.ckpt"
        found = serialization._build_protobuf_strategy(str(rank_file))
        own = {name: one for name, one in found.items() if not name.startswith("adam_")}
        assert {name: _fields(one) for name, one in own.items()} == parameters
        clones = {clone + name for name in parameters for clone in ("adam_m.", "adam_v.")}
        assert found.keys() == own.keys() | clones


def _fields(layout):
    assert layout.field == 0
    assert len(layout.param_split_shape) == len(layout.indices_offset) == 1
    return {
        "dev_matrix": list(layout.dev_matrix[0].dim),
        "tensor_map": list(layout.tensor_map[0].dim),
        "opt_weight_shard_step": layout.opt_weight_shard_step,
        "opt_weight_shard_size": layout.opt_weight_shard_size,
    }


def test_merged_file_equals_the_one_that_mindspore_merges(tmp_path):
    mindspore = pytest.importorskip("mindspore")
    model, layout = make_model(), make_layout(data_parallel=2, model_parallel=2, pipeline_stage=2)
    write_strategy(model, layout, tmp_path / "ours")
    merged = tmp_path / "ours" / "merged_ckpt_strategy.ckpt"
    kept = tmp_path / "kept.ckpt"
    merged.rename(kept)

    mindspore.merge_pipeline_strategys(str(tmp_path / "ours"), str(tmp_path / "theirs.ckpt"))

    assert read_strategy(kept) == read_strategy(tmp_path / "theirs.ckpt")
    assert len(kept.read_bytes()) == (tmp_path / "theirs.ckpt").stat().st_size


def test_reads_the_raw_files_of_mindspore():
    *_, expected = load(next(file for file in cases() if file.stem == "d1m2p2"))
    strategy = read_strategy(RAW)
    assert (strategy.stages, strategy.cards_per_stage, strategy.ranks) == (2, 2, 4)
    assert fields(strategy) == expected
    assert strategy.tensors["adam_m.lm_head.weight"] == strategy.tensors["lm_head.weight"]


MINDRLHF = {
    "train": ("train_policy", "grpo_model_train.policy_model.model."),
    "generate": ("infer_policy", "grpo_model.policy_model.model."),
    "reference": ("infer_ref", "model."),
}


def test_mindrlhf_names(tmp_path):
    for role, (name, prefix) in MINDRLHF.items():
        write_strategy(make_model(), make_layout(model_parallel=2, pipeline_stage=2), tmp_path, role=role)
        ranks = tmp_path / f"{name}_strategy"
        assert {file.name for file in ranks.iterdir()} == {f"strategy_{rank}.ckpt" for rank in range(4)}
        merged = read_strategy(tmp_path / "merge_strategy" / f"{name}_merged_strategy.ckpt")
        assert {f"{prefix}model.norm_out.weight", f"adam_v.{prefix}lm_head.weight"} <= merged.tensors.keys()
        assert read_strategy(ranks) == merged
        if role == "train":
            assert read_strategy(tmp_path) == merged
    with pytest.raises(InputError, match="holds several roles' strategies"):
        read_strategy(tmp_path)


def test_72b_on_64_cards_has_a_file_per_rank_and_a_merged_one(tmp_path):
    model = make_model(
        hidden_size=8192, num_hidden_layers=80, num_attention_heads=64, num_key_value_heads=8,
        intermediate_size=29568, vocab_size=152064,
    )  # fmt: skip
    layout = make_layout(data_parallel=2, model_parallel=8, pipeline_stage=4, enable_parallel_optimizer=True)
    write_strategy(model, layout, tmp_path)
    assert len(list(tmp_path.iterdir())) == 65
    assert len(read_strategy(tmp_path).tensors) >= 80 * 12 + 3


def test_mindspore_can_be_imported_after_our_reader():
    pytest.importorskip("mindspore")
    code = "import stages.weights.strategy.files, mindspore"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
