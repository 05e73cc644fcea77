"""The memory estimate of AReaL's roles, against sizes counted by hand."""

import pytest

from pipeline.config.load import load
from stages.engines import get
from stages.engines.areal.job import Job
from stages.models.memory import GIB

BASE = ("engine=areal", "model=qwen2_5_7b", "model.path=/models/qwen")
PARAMETERS = 7_615_616_512  # of Qwen2.5-7B, as its model card says


def roles(*overrides):
    job = Job.from_run(load([*BASE, *overrides]))
    return {role.role: {term.name: term for term in role.terms} for role in get("areal").memory(job)}, job


@pytest.mark.parametrize("cards", [1, 8])
def test_fsdp_shares_float32_state_among_the_training_cards(cards):
    found, _ = roles(f"layout=dp{cards}_mp1_pp1", "engine.kl_in_reward=0.1")
    state = [found["train"][name].low for name in ("weights", "gradients", "optimizer")]
    assert sum(state) == pytest.approx(16 * PARAMETERS / cards, abs=64)
    assert found["train"]["reference weights"].low == pytest.approx(4 * PARAMETERS / cards, abs=64)
    assert found["reference"]["reference weights"].low == found["train"]["reference weights"].low
    assert found["generate"]["weights"].low == 2 * PARAMETERS


def test_servers_share_weights_and_cache_by_tensor_parallelism():
    shard = ("layout.generate.model_parallel=2", "layout.generate.data_parallel=4")
    found, _ = roles(
        "layout=dp8_mp1_pp1", *shard, "rollout.max_tokens=1024", "tokenize.max_prompt_length=512"
    )
    assert found["generate"]["weights"].low == PARAMETERS
    # 28 layers x keys and values x 2 of 4 heads x 128 x bfloat16, of one sequence
    assert found["generate"]["KV cache"].low == 28 * 2 * 2 * 128 * 2 * 1536


def test_a_warning_names_what_does_not_fit():
    engine = get("areal")
    for overrides, expected in (
        (("layout=dp1_mp1_pp1",), "train does not fit into engine.device_memory_gib=64"),
        (("layout=dp1_mp1_pp1", "engine.device=cpu"), "do not fit into this machine's 24.0 GiB"),
    ):
        job = Job.from_run(load([*BASE, *overrides]))
        assert any(expected in line for line in engine.shortage(job, engine.memory(job), 24 * GIB))
    job = Job.from_run(load([*BASE, "layout=dp8_mp1_pp1", "layout.train.recompute=true"]))
    assert not engine.shortage(job, engine.memory(job), 24 * GIB)
