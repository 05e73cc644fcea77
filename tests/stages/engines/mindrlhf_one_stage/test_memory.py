"""Qwen2.5-7B on eight cards, bytes counted by hand."""

from stages.engines.mindrlhf_one_stage.memory import estimate
from tests.stages.engines.mindrlhf.test_memory import by_hand
from tests.stages.engines.mindrlhf_one_stage.jobs import job_of

SEVEN = ("model=qwen2_5_7b", "layout=dp2_mp4_pp1")


def roles(*overrides):
    return {
        role.role: {term.name: term for term in role.terms} for role in estimate(job_of(*SEVEN, *overrides))
    }


def test_generation_holds_the_reference_and_in_the_first_step_the_training_weights():
    generate = roles()["generate"]
    assert generate["weights"].low == generate["reference weights"].low == 4 * by_hand(4)
    # 28 layers x key and value x 1 head of 128 x 2 bytes, for 1024 blocks of 32 tokens
    assert generate["KV cache"].low == 28 * 2 * 128 * 2 * 1024 * 32
    first = generate["training's weights"]
    assert (first.low, first.high) == (0, (4 + 8) * by_hand(4))


def test_the_oldest_contract_keeps_generation_on_the_card_while_the_reference_scores():
    old = roles("engine.contract=32599d0", "train.prompts_per_step=2")["reference"]
    assert old["generation's weights"].low == 4 * by_hand(4)
    assert "generation's weights" not in roles()["reference"]


def test_resharding_holds_all_three_models():
    terms = roles()["reshard"]
    assert [terms[f"{name} weights"].low for name in ("train", "generate", "reference")] == [
        4 * by_hand(4)
    ] * 3
