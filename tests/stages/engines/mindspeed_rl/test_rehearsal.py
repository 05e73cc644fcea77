"""Placeholders for an NPU's packages; tests/upstream/mindspeed_rl runs upstream's programs with them."""

import os
import subprocess
import sys

from stages.engines.mindspeed_rl.rehearsal.upstream import ENGINE, ON_PATH, environment
from stages.engines.rehearsal import VARIABLE

TORCH = """
from types import SimpleNamespace
def get_rng_state(): return "the CPU's"
cuda = SimpleNamespace(get_rng_state=None, is_available=lambda: False)
"""
PROGRAM = """
import pickle, vllm, torch_npu, torch
from vllm.model_executor.layers import linear
from torch_npu.contrib import transfer_to_npu

class Layer(linear.LinearBase):
    pass

@torch_npu.jit.script
def add(a, b):
    return a + b

assert add(1, 2) == 3 and isinstance(Layer(print), Layer) and not torch_npu.npu.is_available()
class Operator:
    def __call__(self, tensor):
        raise TypeError(tensor)

@vllm.register(name="layer")
def layer():
    return 4

@vllm.register(Operator())
def converter():
    return 5

assert layer() == 4 and converter() == 5 and not hasattr(vllm, "__no_such__")
assert pickle.loads(pickle.dumps(vllm.config)) is vllm.config
assert torch.cuda.is_available() and torch.cuda.get_rng_state("npu") == "the CPU's"
torch.npu.set_device(0)
"""


def run(code, directory, **variables):
    (directory / "torch.py").write_text(TORCH)
    plain = {key: value for key, value in os.environ.items() if key != VARIABLE}
    path = os.pathsep.join([str(directory), str(ON_PATH)])
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**plain, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_hidden_packages_have_every_name_that_upstream_uses(tmp_path):
    done = run(PROGRAM, tmp_path, **{VARIABLE: ENGINE})
    assert done.returncode == 0, done.stderr


def test_nothing_is_hidden_in_other_processes(tmp_path):
    assert "No module named 'torchair'" in run("import torchair", tmp_path).stderr
    assert "No module named 'torchair'" in run("import torchair", tmp_path, **{VARIABLE: "mindrlhf"}).stderr


def test_installed_packages_are_hidden_too(tmp_path):
    (tmp_path / "vllm.py").write_text("raise SystemExit('the real one')")
    assert run("import vllm", tmp_path, **{VARIABLE: ENGINE}).returncode == 0


def test_the_recipes_own_path_comes_after_the_placeholders():
    variables = environment({"PYTHONPATH": "/msadapter", "LD_PRELOAD": "/lib/libjemalloc.so.2"})
    assert variables["PYTHONPATH"] == f"{ON_PATH}:/msadapter"
    assert variables["LD_PRELOAD"] == "/lib/libjemalloc.so.2" and variables[VARIABLE] == ENGINE
    assert environment({})["PYTHONPATH"] == str(ON_PATH)
