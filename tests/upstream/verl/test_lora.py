"""LoRA with the real verl: only the adapters are trained, and the rollout uses them."""

from pathlib import Path

import pytest

from tests.upstream.programs import ask
from tests.upstream.verl.product import grpoflow, tiny_run
from tests.upstream.verl.runs import MAX_TOKENS, STEPS, algorithm

pytestmark = [pytest.mark.upstream, pytest.mark.timeout(1800)]
PROGRAM, EXPORTED = (Path(__file__).parent / name for name in ("adapters.py", "exported.py"))
LAYERS, RANK, ALPHA = 2, 4, 8
ROUNDING = 2**-7
"""Largest relative difference: base, both adapters and sum are rounded to bfloat16, by up to 2^-9 each."""
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


def test_an_export_is_the_fetched_model_plus_the_trained_adapters(interpreter, tmp_path):
    overrides = [
        *tiny_run(interpreter("verl"), tmp_path), f"train.lora_rank={RANK}", "train.learning_rate=0.02",
        f"+engine.upstream.actor_rollout_ref.model.lora_alpha={ALPHA}",
    ]  # fmt: skip
    done = grpoflow(tmp_path, "run", "--until", "export", *overrides)
    assert done.returncode == 0, done.stderr[-3000:]
    paths = {
        stage: str(next((tmp_path / "store" / stage).iterdir())) for stage in ("fetch", "grpo", "export")
    }
    answer = ask(interpreter("verl"), EXPORTED, {**paths, "scale": ALPHA / RANK})
    assert answer["names"] and answer["base"] < ROUNDING  # the shards hold the fetched weights
    assert answer["difference"] < ROUNDING < 1e-2 < answer["smallest_update"]
