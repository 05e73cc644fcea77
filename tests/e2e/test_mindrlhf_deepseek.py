"""DeepSeek-V3 around the stand-in's deepseekv3_grpo_tutorial: a tiny one, two workers under real msrun."""

import json
import shutil
import sys

import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file, save_file

from tests.e2e.conftest import CHEAP, run_plain
from tests.e2e.mindrlhf import HOME, rows
from tests.e2e.outside import STEPS, artifact
from tests.processes import living

SHAPE = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 1024,
}  # fmt: skip
TWO_CARDS = {
    "data_parallel": 1, "model_parallel": 2, "pipeline_stage": 1, "expert_parallel": 2, "micro_batch_num": 1,
}  # fmt: skip


def weights(vocabulary):
    """A few tensors under mindformers' names; the stand-in asks for no others."""
    shapes = {
        "model.tok_embeddings.embedding_weight": (vocabulary, 32),
        "model.layers.0.attention_norm.weight": (32,),
        "model.layers.1.feed_forward.routed_experts.ffn.w1.weight": (4, 32, 16),
        "model.norm_out.weight": (32,),
        "lm_head.weight": (vocabulary, 32),
    }
    random = np.random.default_rng(0)
    return {name: random.integers(-8, 8, shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.fixture
def model(mindrlhf_prepared, tmp_path):
    """A directory as a user has it: config.json, tokenizer, weights that mindformers' tool made."""
    source, directory = artifact(mindrlhf_prepared, "fetch"), tmp_path / "model"
    directory.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt"):
        if (source / name).exists():
            shutil.copyfile(source / name, directory / name)
    vocabulary = json.loads((source / "config.json").read_text())["vocab_size"]
    shape = {**SHAPE, "vocab_size": vocabulary, "rope_theta": 10000.0, "rms_norm_eps": 1e-6}
    config = {"model_type": "deepseek_v3", "tie_word_embeddings": False, **shape}
    (directory / "config.json").write_text(json.dumps(config))
    save_file(weights(vocabulary), directory / "model.safetensors")
    return directory


def overrides(model):
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    cheap = [item for item in CHEAP if item.startswith(("dataset.", "rollout."))]
    return [
        "experiment=mindrlhf_deepseek_v3", "dataset=arith", f"model.path={model}", *cheap,
        *[f"model.{name}={value}" for name, value in SHAPE.items()], f"model.vocab_size={vocabulary}",
        "model.deepseek_v3.n_routed_experts=4", "model.deepseek_v3.num_experts_per_tok=2",
        *[f"layout.train.{name}={value}" for name, value in TWO_CARDS.items()], "layout.train.offset=[]",
        *[f"layout.{role}.{name}={value}" for role in ("generate", "reference")
          for name, value in (("data_parallel", 1), ("model_parallel", 2), ("expert_parallel", 1))],
        f"engine.mindrlhf_home={HOME / 'e8a8fc1'}", f"engine.python={sys.executable}",
        "train.prompts_per_step=8", "train.checkpoint_every=2", "tokenize.chat_template=false",
        "tokenize.sft_length=640",
    ]  # fmt: skip


@pytest.mark.slow
def test_it_is_trained_and_its_rank_files_are_imported(model, tmp_path):
    store = tmp_path / "store"
    done = run_plain(store, *overrides(model))
    assert done.exit_code == 0, done.stderr
    assert [row["step"] for row in rows(store)] == list(range(1, STEPS + 1))
    grpo = artifact(store, "grpo")
    before = weights(json.loads((model / "config.json").read_text())["vocab_size"])
    for rank in (0, 1):
        (file,) = (grpo / "train" / f"rank_{rank}").glob("policy_model_rank_*.safetensors")
        after = load_file(file)
        for name, complete in before.items():
            part = complete if "norm" in name else np.split(complete, 2)[rank]
            result = after[f"grpo_model_train.policy_model.model.{name}"]
            np.testing.assert_array_equal(result, part + np.float32(STEPS * 2.0**-10))
    config = yaml.safe_load((grpo / "configs" / "finetune.yaml").read_text())
    assert config["moe_config"]["expert_num"] == 4
    assert not (grpo / "train_strategy").exists()
    assert "report" in done.result and "accuracy_grpo" not in done.result
    assert not (model / "param_name_map.json").exists() and not living(store)
