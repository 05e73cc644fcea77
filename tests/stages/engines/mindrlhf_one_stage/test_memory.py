"""Qwen2.5-7B on eight cards, bytes counted by hand."""

from stages.engines.mindrlhf_one_stage.variant import estimate
from tests.stages.engines.mindrlhf.test_memory import by_hand
from tests.stages.engines.mindrlhf_one_stage.jobs import job_of

SEVEN = ("model=qwen2_5_7b", "layout=dp2_mp4_pp1")


def roles(*overrides):
    return {
        role.role: {term.name: term for term in role.terms} for role in estimate(job_of(*SEVEN, *overrides))
    }


def test_generation_holds_the_reference():
    generate = roles()["generate"]
    assert generate["weights"].low == generate["reference weights"].low == 4 * by_hand(4)
    # 28 layers x key and value x 1 head of 128 x 2 bytes, for 1024 blocks of 32 tokens
    assert generate["KV cache"].low == 28 * 2 * 128 * 2 * 1024 * 32


def test_resharding_holds_all_three_models():
    terms = roles()["reshard"]
    assert [terms[f"{name} weights"].low for name in ("train", "generate", "reference")] == [
        4 * by_hand(4)
    ] * 3
