"""Qwen2.5-7B on eight cards, counted by hand."""

from dataclasses import replace

import pytest

from stages.engines.mindrlhf.memory import estimate, train_stages
from stages.models.families import family_of
from stages.models.memory import GIB
from tests.stages.engines.mindrlhf.jobs import job_of
from tests.stages.weights.strategy import golden

STARTED = [file for file in golden.cases() if family_of(golden.load(file)[0]).mindrlhf is not None]
SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2", "engine.device_memory_gib=64")


def roles(*overrides):
    job = job_of(*SEVEN, *overrides)
    return {role.role: role for role in estimate(job)}


def terms(role):
    return {term.name: term for term in role.terms}


def by_hand(cards):
    """Elements per card: biases, o and down, and the embedding and head are cut, norms are not."""
    hidden, inner, kv, vocabulary = 3584, 18944, 512, 152064
    layer = (2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner + hidden + 2 * kv) // cards
    return 28 * (layer + 2 * hidden) + 2 * vocabulary * hidden // cards + hidden


def test_the_parallel_optimizer_gathers_weights():
    plain = roles("layout=dp2_mp4_pp1")["train"]
    cut = roles("layout=dp2_mp4_pp1", "layout.train.enable_parallel_optimizer=true")["train"]
    gathered = terms(cut)["gathered weights"]
    assert gathered.high == terms(plain)["weights"].low - terms(cut)["weights"].low
    assert 0 < gathered.low < gathered.high


def test_generation_takes_vllms_share_of_the_card():
    generate = roles()["generate"]
    assert terms(generate)["weights"].low == 2 * by_hand(4)  # bfloat16, as the Hugging Face weights
    assert generate.high == 32 * GIB  # gpu_memory_utilization=0.5 of 64 GiB
    # 28 layers x key and value x 1 head of 128 x 2 bytes, for one sequence of 2048 tokens
    assert terms(generate)["KV cache"].low == 28 * 2 * 128 * 2 * 2048
    blocks = roles("engine.use_vllm=0")["generate"]
    assert terms(blocks)["KV cache"].high == 28 * 2 * 128 * 2 * 1024 * 16


def test_resharding_holds_the_weights_of_all_roles_unless_it_is_done_on_the_host():
    result = roles("layout=dp2_mp4_pp1")["reshard"]
    assert terms(result).keys() > {"train weights", "generate weights", "old policy weights"}
    assert result.low == (4 + 2 + 4) * by_hand(4)
    assert roles("engine.reshard_mem_opt_level=1")["reshard"].low == 0


@pytest.mark.parametrize("file", STARTED, ids=lambda file: file.stem)
def test_exact_terms_equal_the_bytes_of_mindspores_layouts(file):
    """Every layout that MindSpore wrote, in full width: weights, gradients alike, two float32 moments."""
    model, layout, stages = golden.load(file)
    job = job_of("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
    job = replace(job, model=model, layout=replace(job.layout, train=layout))
    item = {"float32": 4, "bfloat16": 2, "float16": 2}[model.param_init_type]
    for stage, count in zip(train_stages(job), golden.held(model, stages), strict=True):
        named = {term.name: term for term in stage}
        sizes = [named[name] for name in ("weights", "gradients", "optimizer")]
        assert all(term.low == term.high and term.exact for term in sizes)
        assert [term.low for term in sizes] == [item * count, item * count, 2 * 4 * count]
