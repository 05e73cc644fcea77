"""LoRA with the real verl: only the adapters are trained, and the rollout uses them."""

from pathlib import Path

import pytest

from tests.upstream.programs import ask
from tests.upstream.verl.runs import MAX_TOKENS, STEPS, algorithm

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
PROGRAM = Path(__file__).parent / "adapters.py"
LAYERS, RANK, ALPHA = 2, 4, 8
LORA = {
    "actor_rollout_ref.model.lora_rank": RANK,
    "actor_rollout_ref.model.lora_alpha": ALPHA,
    "actor_rollout_ref.model.target_modules": "all-linear",
    "actor_rollout_ref.model.lora.merge": "true",
    "actor_rollout_ref.actor.optim.lr": 2e-2,
}


def test_only_adapters_are_trained_and_the_rollout_uses_them(verl, tmp_path):
    run = verl.train(tmp_path, 1, {**algorithm("grpo"), **LORA})
    request = {
        "directory": str(run.directory),
        "model": str(verl.data / "model"),
        "step": STEPS - 1,
        "scale": ALPHA / RANK,
        "max_tokens": MAX_TOKENS,
    }
    answer = ask(verl.python, PROGRAM, request)
    assert answer["changed"] == []
    assert answer["adapters"] == 7 * LAYERS
    assert answer["smallest_update"] > 1e-3
    # verl rounds merged weights to bfloat16 for the rollout, so its probabilities differ a little
    assert 5 * run.metrics()[-1]["training/rollout_probs_diff_mean"] < answer["effect"]
