"""verl with its own vLLM rollout on a CPU: the real vLLM, whose weights verl replaces after each step."""

import json
import math

import pytest

from tests.upstream.programs import run
from tests.upstream.verl.conftest import PREPARE
from tests.upstream.verl.product import SHAPE, STEPS, Verl

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(2400)]
VLLM = "engine.rollout=vllm"
CLOSE = 1e-5
"""Largest difference of mean log-probabilities that float32 explains."""
CONTROL = '''"""Drops the weights that verl sends to vLLM, except for the first ones."""


def drop():
    from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension as Extension

    original, loaded = Extension._update_weights, []

    def update(self, weights, **kwargs):
        if not loaded:
            original(self, weights, **kwargs)
        loaded.append(True)

    Extension._update_weights = update
'''


HEADS = {**SHAPE, "head_dim": 32}
"""vLLM on a CPU has no smaller heads."""


def with_shape(interpreter, directory, shape):
    """Return verl with vLLM, and a model of this shape."""
    python = interpreter("vllm")
    run(python, PREPARE, directory, json.dumps(shape))
    return Verl(python, directory, shape)


@pytest.fixture(scope="module")
def vllm(interpreter, tmp_path_factory):
    return with_shape(interpreter, tmp_path_factory.mktemp("data"), HEADS)


def metrics(made):
    return [json.loads(line) for line in (made.grpo / "metrics.jsonl").read_text().splitlines()]


def check(made):
    rows = metrics(made)
    assert [row["step"] for row in rows] == list(range(1, STEPS + 1))
    assert all(math.isfinite(value) for row in rows for value in row.values())
    assert all(row["grad_norm"] > 0 for row in rows)
    assert all(row["rollout_logprob_diff"] < CLOSE for row in rows)
    assert all(row["rollout_prob_diff_max"] < CLOSE for row in rows)
    assert "rollout_logprob_diff" not in made.warnings()
    return rows


def test_three_steps_with_vllm_sample_what_is_trained_and_check_held_out_prompts(vllm, tmp_path):
    made = vllm.train(tmp_path, VLLM, "train.validate_every=1", "train.validation_prompts=8")
    assert all(0 <= row["validation_accuracy"] <= 1 for row in check(made))


def test_a_run_can_be_repeated(vllm, tmp_path):
    first, again = (vllm.train(tmp_path / name, VLLM) for name in ("first", "again"))
    assert first.completions() == again.completions()
    assert all(len({text for _, text, _ in step}) > 4 for step in first.completions())


def test_weights_that_do_not_arrive_are_noticed(vllm, tmp_path):
    control = tmp_path / "control"
    metadata = control / "dropped_weights-1.dist-info"
    metadata.mkdir(parents=True)
    (control / "dropped_weights.py").write_text(CONTROL)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: dropped-weights\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(
        "[vllm.general_plugins]\ndropped_weights = dropped_weights:drop\n"
    )
    made = vllm.train(tmp_path / "run", VLLM, f"+engine.env.PYTHONPATH={control}")
    differences = [row["rollout_logprob_diff"] for row in metrics(made)]
    assert differences[0] < CLOSE < 1e-3 < min(differences[1:])
    assert "rollout_logprob_diff is above 0.001 in 2 steps" in made.warnings()


@pytest.mark.parametrize("degree", [1, 2], ids=["two replicas", "tensor parallel"])
def test_two_workers(interpreter, tmp_path, degree):
    heads = {**HEADS, "num_attention_heads": 4, "num_key_value_heads": 2}
    vllm = with_shape(interpreter, tmp_path / "data", heads)
    layout = ("layout=dp2_mp1_pp1", f"layout.generate.model_parallel={degree}")
    layout += (f"layout.generate.data_parallel={2 // degree}",)
    check(vllm.train(tmp_path / "run", VLLM, *layout))


def test_lora_adapters_reach_vllm(vllm, tmp_path):
    check(vllm.train(tmp_path, VLLM, "train.lora_rank=4"))
