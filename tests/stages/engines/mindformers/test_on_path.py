"""Hooks and attention in mindrlhf's processes; tests/upstream/mindrlhf runs all replacements."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys

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
