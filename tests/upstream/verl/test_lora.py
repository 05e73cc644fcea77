"""LoRA with the real verl: only the adapters are trained, the rollout uses them, and the export has them."""

from pathlib import Path

import pytest

from tests.upstream.programs import ask
from tests.upstream.verl.product import MAX_TOKENS, STEPS

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
PROGRAM = Path(__file__).parent / "adapters.py"
LAYERS, RANK, ALPHA = 2, 4, 8
ROUNDING = 2**-7
"""Largest relative difference: base, both adapters and sum are rounded to bfloat16, by up to 2^-9 each."""


def test_adapters_are_trained_used_and_exported(verl, tmp_path):
    overrides = [
        f"train.lora_rank={RANK}", "train.learning_rate=0.02",
        f"+engine.upstream.actor_rollout_ref.model.lora_alpha={ALPHA}",
    ]  # fmt: skip
    run = verl.train(tmp_path, *overrides, until="export")
    paths = {
        stage: str(next((tmp_path / "store" / stage).iterdir())) for stage in ("fetch", "grpo", "export")
    }
    request = {**paths, "step": STEPS, "scale": ALPHA / RANK, "max_tokens": MAX_TOKENS}
    answer = ask(verl.python, PROGRAM, request)
    assert answer["names"] and answer["adapters"] == 7 * LAYERS
    assert answer["base"] < ROUNDING  # the shards hold the fetched weights
    assert answer["difference"] < ROUNDING < 1e-2 < answer["smallest_update"]
    # verl rounds merged weights to bfloat16 for the rollout, so its probabilities differ a little
    assert 5 * run.metrics()[-1]["training/rollout_probs_diff_mean"] < answer["effect"]
