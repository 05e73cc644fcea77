"""The built-in model and the built-in arithmetic problems."""

import re
from collections import Counter

import numpy as np
import pytest
from safetensors.numpy import load_file

from stages.fetch.arith import generate
from stages.fetch.builtin import write_model
from stages.fetch.config import ArithConfig
from tests.stages.fetch.settings import model

IDS = {"bos": 300, "eos": [302, 300], "pad": 300}


def written(tmp_path, seed=0, **changes):
    write_model(model(**changes), IDS, seed, tmp_path)
    return load_file(tmp_path / "model.safetensors")


def test_weights_are_normally_distributed_biases_0_and_norms_1(tmp_path):
    weights = written(tmp_path, hidden_size=64, vocab_size=2000)
    table = weights["model.embed_tokens.weight"]
    assert (table.shape, table.dtype) == ((2000, 64), np.float32)
    assert table.std() == pytest.approx(0.02, rel=0.02)
    assert abs(table.mean()) < 1e-3
    assert not weights["model.layers.1.self_attn.k_proj.bias"].any()
    assert (weights["model.norm.weight"] == 1).all()
    assert weights["model.layers.0.self_attn.k_proj.weight"].shape == (32, 64)
    assert "lm_head.weight" not in weights


@pytest.mark.parity
def test_transformers_loads_every_tensor(tmp_path):
    transformers = pytest.importorskip("transformers")
    weights = written(tmp_path, tie_word_embeddings=False)
    loaded, info = transformers.Qwen2ForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    state = loaded.state_dict()
    assert set(state) == set(weights)
    assert all((state[name].numpy() == value).all() for name, value in weights.items())


def test_questions_are_distinct_sums_of_the_configured_lengths_with_their_answers():
    def addends(question):
        return tuple(map(int, re.findall(r"\d", question)))

    config = ArithConfig(min_addends=3, max_addends=5, worked_share=0.4)
    train, test = generate(config, seed=3, train_rows=6000, test_rows=1024)
    questions = [question for question, _ in train + test]
    assert (len(train), len(test), len(set(questions))) == (6000, 1024, 7024)
    assert not {addends(q) for q, _ in train} & {addends(q) for q, _ in test}
    for question, answer in train + test:
        assert answer.rpartition("#### ")[2] == str(sum(addends(question)))
        for line in answer.split("\n")[:-1]:
            left, right = line.split("=")
            assert eval(left) == int(right)
    lengths = Counter(len(addends(question)) for question, _ in train)
    assert set(lengths) == {3, 4, 5} and min(lengths.values()) > 1800
    assert sum("=" in answer for _, answer in train) / 6000 == pytest.approx(0.4, abs=0.03)
