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


def test_weights_depend_on_the_seed_and_not_on_the_number_of_layers(tmp_path):
    first = written(tmp_path)
    assert all((value == first[name]).all() for name, value in written(tmp_path).items())
    deeper = written(tmp_path, num_hidden_layers=3)
    assert all((deeper[name] == value).all() for name, value in first.items())
    second = written(tmp_path, seed=1)
    assert (second["model.embed_tokens.weight"] != first["model.embed_tokens.weight"]).any()


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


CONFIG = ArithConfig(min_addends=3, max_addends=5, worked_share=0.4)


def addends(question):
    return tuple(map(int, re.findall(r"\d", question)))


def test_every_answer_is_the_sum_of_its_question():
    train, test = generate(CONFIG, seed=0, train_rows=1000, test_rows=100)
    assert (len(train), len(test)) == (1000, 100)
    for question, answer in train + test:
        assert answer.rpartition("#### ")[2] == str(sum(addends(question)))
        for line in answer.split("\n")[:-1]:
            left, right = line.split("=")
            assert eval(left) == int(right)


def test_no_question_twice_and_no_addends_of_the_test_in_training():
    train, test = generate(CONFIG, seed=3, train_rows=6000, test_rows=1024)
    questions = [question for question, _ in train + test]
    assert len(set(questions)) == len(questions)
    assert not {addends(q) for q, _ in train} & {addends(q) for q, _ in test}


def test_lengths_and_worked_share_are_as_configured():
    train, _ = generate(CONFIG, seed=1, train_rows=6000, test_rows=1)
    lengths = Counter(len(addends(question)) for question, _ in train)
    assert set(lengths) == {3, 4, 5}
    assert min(lengths.values()) > 1800
    worked = sum("=" in answer for _, answer in train) / len(train)
    assert worked == pytest.approx(0.4, abs=0.03)
