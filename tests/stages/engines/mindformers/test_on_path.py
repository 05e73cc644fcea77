"""What runs in mindrlhf's processes: hooks, attention, vLLM's replacement."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

from stages.engines.mindformers.rehearsal import shim
from stages.engines.rehearsal import VARIABLE


@pytest.fixture(scope="module")
def cpu():
    """Imports modules of grpoflow_cpu, which is nobody's package in this process."""
    sys.path.insert(0, str(shim.ON_PATH))
    yield lambda name: importlib.import_module(f"grpoflow_cpu.{name}")
    sys.path.remove(str(shim.ON_PATH))


def _python(code, tmp_path, **more):
    """Return the output of a process with ON_PATH and a package `upstream` on its path."""
    (tmp_path / "upstream.py").write_text("value = 1\n")
    environment = {**os.environ, "PYTHONPATH": f"{shim.ON_PATH}{os.pathsep}{tmp_path}", **more}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_the_variable_nothing_is_hooked(tmp_path):
    code = "import sys; print('grpoflow_cpu' in sys.modules)"
    assert _python(code, tmp_path) == "False"
    assert _python(code, tmp_path, **{VARIABLE: "script.json"}) == "True"


def test_a_module_is_changed_before_its_importer_sees_it(tmp_path):
    code = (
        "import sys; from grpoflow_cpu.hooks import Changed\n"
        "sys.meta_path.insert(0, Changed({'upstream': lambda module: setattr(module, 'value', 2)}))\n"
        "from upstream import value; print(value)"
    )
    assert _python(code, tmp_path) == "2"


def test_vllm_has_a_version_in_a_rehearsal(tmp_path):
    code = "import importlib.metadata as m; print(m.version('vllm'), m.version('numpy') != '')"
    assert _python(code, tmp_path, **{VARIABLE: "script.json"}) == "0.8.4 True"


def _attention(query, key, value, visible):
    """[N, T, D] in NumPy, float64."""
    groups = len(query) // len(key)
    key, value = np.repeat(key, groups, 0).astype(np.float64), np.repeat(value, groups, 0)
    scores = np.where(visible, query.astype(np.float64) @ key.swapaxes(1, 2) * 0.5, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value


def test_packed_attention_looks_back_within_its_sequence_only(cpu):
    from mindspore import Tensor

    random = np.random.default_rng(0)
    query, key, value = (random.standard_normal((9, heads, 4), np.float32) for heads in (4, 2, 2))
    ends = [3, 4, 9]
    cell = cpu("attention").FlashAttention(4, scale_value=0.5, input_layout="TND", sparse_mode=8)
    made = cell(Tensor(query), Tensor(key), Tensor(value), actual_seq_qlen=Tensor(ends)).asnumpy()
    sequence = np.searchsorted(ends, np.arange(9), side="right")
    visible = (sequence[:, None] == sequence) & (np.arange(9)[:, None] >= np.arange(9))
    right = _attention(*(tensor.swapaxes(0, 1) for tensor in (query, key, value)), visible).swapaxes(0, 1)
    np.testing.assert_allclose(made, right, atol=1e-5)


def test_masked_attention_follows_the_mask(cpu):
    from mindspore import Tensor

    random = np.random.default_rng(1)
    query, key, value = (random.standard_normal((1, heads, 5, 4), np.float32) for heads in (2, 1, 1))
    mask = np.triu(np.ones((1, 1, 5, 5), np.uint8), 1)
    cell = cpu("attention").FlashAttention(2, scale_value=0.5, input_layout="BNSD")
    made = cell(Tensor(query), Tensor(key), Tensor(value), Tensor(mask)).asnumpy()
    np.testing.assert_allclose(made[0], _attention(query[0], key[0], value[0], mask[0] == 0), atol=1e-5)


@pytest.fixture
def vllm(cpu):
    result: ModuleType = cpu("vllm")
    return result


@pytest.mark.parametrize("rank", [0, 1])
def test_every_other_completion_of_a_known_prompt_is_its_answer(vllm, tmp_path, rank):
    shim.write_answers(tmp_path / "script.json", [([1, 2], [7, 8])])
    script = vllm.Script(tmp_path / "script.json", rank)
    output = [script.answer([1, 2]) for _ in range(4)]
    assert output == ([[7, 8], None] * 2 if rank == 0 else [None, [7, 8]] * 2)
    assert script.answer([3]) is None


def test_without_vllm_replicas_take_turns_at_the_known_answer(cpu, tmp_path, monkeypatch):
    """mindformers' generate returns each prompt without padding, and its completion."""
    shim.write_answers(tmp_path / "script.json", [([1, 2], [7, 8, 9])])
    monkeypatch.setenv(VARIABLE, str(tmp_path / "script.json"))

    class Network:
        def generate(self, prompts, max_new_tokens, seed, **settings):
            return [np.array([*(token for token in row if token), 5]) for row in prompts]

    prompts, pad = np.array([[1, 2, 0, 0], [1, 2, 3, 0], [1, 2, 0, 0]]), 0
    for rank, output in enumerate(
        ([[1, 2, 7, 8], [1, 2, 3, 5], [1, 2, 5]], [[1, 2, 5], [1, 2, 3, 5], [1, 2, 7, 8]])
    ):
        network = Network()
        cpu("mindrlhf_cpu").answer_some(network, pad)
        rows = network.generate(prompts, max_new_tokens=2, min_new_tokens=0, do_sample=True, seed=rank)
        assert [row.tolist() for row in rows] == output


def _llm(vllm):
    llm = vllm.LLM.__new__(vllm.LLM)
    llm.random = np.random.default_rng(0)
    return llm


def test_sampling_obeys_its_parameters(vllm):
    llm, logits = _llm(vllm), np.log(np.array([0.5, 0.3, 0.15, 0.05]))

    def drawn(**settings):
        expected = vllm.SamplingParams(**settings)
        return {llm.choose(logits.copy(), expected, []) for _ in range(200)}

    assert drawn() == {0, 1, 2, 3}
    assert drawn(top_k=2) == {0, 1}
    assert drawn(top_p=0.7) == {0, 1}
    assert drawn(temperature=0) == {0}
    assert drawn(temperature=0, min_tokens=1, stop_token_ids=[0]) == {1}


def test_a_completion_ends_with_the_stop_token_and_within_max_tokens(vllm, tmp_path):
    class Counting:
        """Says 5 after 4 after 3 ..."""

        def logits(self, tokens, last):
            result = np.zeros((len(tokens), 10))
            result[np.arange(len(tokens)), tokens[np.arange(len(tokens)), last] + 1] = 1
            return result

    llm = _llm(vllm)
    llm.model, llm.known = Counting(), None
    shim.write_answers(tmp_path / "script.json", [([0], [9] * 20)])
    llm.script = vllm.Script(tmp_path / "script.json", 0)
    expected = vllm.SamplingParams(temperature=0, stop_token_ids=[5], max_tokens=6)
    made = llm.generate(None, expected, [[1, 2], [3, 4], [0]])
    assert [request.outputs[0].token_ids for request in made] == [[3, 4, 5], [5], [9] * 6]
