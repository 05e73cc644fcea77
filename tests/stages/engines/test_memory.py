"""Bytes of Qwen2.5-7B in each engine's roles, by hand; of layouts: tests/stages/models/test_memory.py."""

import pytest

from pipeline.config.load import load
from stages.engines import local
from stages.engines.mindrlhf import memory as mindrlhf
from stages.engines.mindrlhf_one_stage.engine import ENGINE as ONE_STAGE
from stages.engines.mindspeed_rl import memory as mindspeed_rl
from stages.grpo.memory import estimate
from stages.models.memory import GIB, elements, warnings
from tests.stages.engines.mindrlhf.jobs import job_of as mindrlhf_job
from tests.stages.engines.mindrlhf_one_stage.jobs import job_of as one_stage_job
from tests.stages.engines.mindspeed_rl.jobs import job_of as mindspeed_rl_job

SEVEN = "model=qwen2_5_7b"
PARAMETERS = 7_615_616_512
"""Its model card says 7.61 billion."""
BLOCK = 28 * 2 * 128 * 2
"""Bytes of a token in the cache of one of four cards: layers, key and value, one head of 128, bfloat16."""


def held(cards):
    """Elements per card: biases, o and down, and the embedding and head are cut, norms are not."""
    hidden, inner, kv, vocabulary = 3584, 18944, 512, 152064
    layer = (2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * inner + hidden + 2 * kv) // cards
    return 28 * (layer + 2 * hidden) + 2 * vocabulary * hidden // cards + hidden


def roles(*overrides):
    """Return mindrlhf's roles by name."""
    job = mindrlhf_job(SEVEN, "layout=dp1_mp4_pp2", "engine.device_memory_gib=64", *overrides)
    return {role.role: role for role in mindrlhf.estimate(job)}


def terms(role):
    return {term.name: term for term in role.terms}


def test_mindrlhf_holds_float32_weights_gradients_and_two_moments():
    train = terms(roles("layout=dp2_mp4_pp1")["train"])
    assert [train[name].low for name in ("weights", "gradients", "optimizer")] == [
        size * held(4) for size in (4, 4, 8)
    ]
    cut = terms(roles("layout=dp2_mp4_pp1", "layout.train.enable_parallel_optimizer=true")["train"])
    gathered = cut["gathered weights"]
    assert gathered.high == train["weights"].low - cut["weights"].low
    assert 0 < gathered.low < gathered.high


def test_generation_takes_vllms_share_of_the_card():
    generate = roles()["generate"]
    assert terms(generate)["weights"].low == 2 * held(4)  # bfloat16, as the Hugging Face weights
    assert generate.high == 32 * GIB  # gpu_memory_utilization=0.5 of 64 GiB
    assert terms(generate)["KV cache"].low == BLOCK * 2048
    assert terms(roles("engine.use_vllm=0")["generate"])["KV cache"].high == BLOCK * 1024 * 16


def test_resharding_holds_the_weights_of_all_roles_unless_it_is_done_on_the_host():
    result = roles("layout=dp2_mp4_pp1")["reshard"]
    assert terms(result).keys() > {"train weights", "generate weights", "old policy weights"}
    assert result.low == (4 + 2 + 4) * held(4)
    assert roles("engine.reshard_mem_opt_level=1")["reshard"].low == 0


def test_one_stage_generates_with_the_reference_and_reshards_all_three_models():
    estimated = ONE_STAGE.memory(one_stage_job(SEVEN, "layout=dp2_mp4_pp1"))
    by_role = {role.role: terms(role) for role in estimated}
    generate, reshard = by_role["generate"], by_role["reshard"]
    assert generate["weights"].low == generate["reference weights"].low == 4 * held(4)
    assert generate["KV cache"].low == BLOCK * 1024 * 32
    for name in ("train", "generate", "reference"):
        assert reshard[f"{name} weights"].low == 4 * held(4)


@pytest.mark.parametrize(
    ("layout", "optimizer"),
    [
        ("layout=dp1_mp1_pp1", 12 * PARAMETERS),
        ("layout=dp4_mp1_pp1", 12 * PARAMETERS // 4),  # only the optimizer is divided among replicas
        ("layout=dp4_mp1_pp1 layout.train.enable_parallel_optimizer=false", 12 * PARAMETERS),
    ],
)
def test_bytes_per_parameter_are_megatrons(layout, optimizer):
    train, _, reference, *_ = mindspeed_rl.estimate(mindspeed_rl_job(SEVEN, *layout.split()))
    sizes = [terms(train)[name].high for name in ("weights", "gradients", "optimizer")]
    assert sizes == [2 * PARAMETERS, 4 * PARAMETERS, optimizer]
    assert terms(reference)["weights"].high == 2 * PARAMETERS


@pytest.mark.parametrize(("gib", "fits"), [(16, False), (512, True)])
def test_a_role_that_does_not_fit_is_reported(gib, fits):
    job = mindspeed_rl_job(SEVEN, "layout=dp4_mp2_pp2", "layout.train.recompute=true")
    problems = warnings(mindspeed_rl.estimate(job), gib)
    assert problems == [] if fits else any("train does not fit" in problem for problem in problems)


LOCAL = [
    "layout=dp2_mp1_pp1", "train.prompts_per_step=4", "rollout.num_generations=2", "rollout.max_tokens=8",
]  # fmt: skip


def local_roles(*overrides):
    config = load([*LOCAL, *overrides])
    actual = estimate(config.model, config.layout, config.train, config.rollout, 16)
    return config, {role.role: {term.name: term for term in role.terms} for role in actual}


def test_all_is_float32_whatever_the_weights_are_stored_in():
    for dtype in ("float32", "bfloat16"):
        config, actual = local_roles(f"model.torch_dtype={dtype}", f"model.param_init_type={dtype}")
        size = 4 * config.model.num_parameters
        assert elements(config.model, config.layout.train)[0].held * 4 == size
        assert [actual["train"][name].low for name in ("weights", "gradients", "optimizer")] == [
            size, size, 2 * size,
        ]  # fmt: skip
        assert actual["reference"]["weights"].low == size
        assert actual["generate"]["weights"].high == 0  # one copy with training's, which are cut alike
    apart, actual = local_roles(
        "layout=dp1_mp2_pp1", "layout.generate.data_parallel=2", "layout.generate.model_parallel=1"
    )
    assert actual["generate"]["weights"].low == 4 * apart.model.num_parameters


def test_activations_and_cache_by_hand():
    """Tiny: hidden 192, 2 layers, 4 heads of 48, 2 key-value heads, intermediate 640, vocabulary 512."""
    _, actual = local_roles()
    answers, questions = 2 * 2 * 8, 2 * 16  # of one worker
    token = 24 * 192 + 3 * (192 + 2 * 96) + 3 * 640
    scores = 4 * (answers * (16 + 8) + questions * 16)
    stored = 4 * 2 * ((answers + questions) * token + scores)
    term = actual["train"]["activations"]
    assert (term.low, term.high) == (int(0.85 * stored), int(1.15 * stored))
    assert actual["train"]["logits"].high == int(1.15 * answers * 512 * 2 * 4)
    first, every = actual["generate"]["first KV cache"], actual["generate"]["KV cache"]
    assert (first.low, every.high) == (0, (answers + 2 * questions) * 2 * 2 * 96 * 4)
    assert first.high == every.low == 2 * 2 * (2 + 16) * 2 * 2 * 96 * 4  # the first 2 of 8 tokens
    _, checked = local_roles("train.validate_every=1", "train.validation_prompts=6")
    assert checked["generate"]["checks' cache"].high == 3 * (16 + 8) * 2 * 2 * 96 * 4  # of one worker
    assert not {"checks' cache", "smaller KV caches"} & set(actual["generate"])
    _, many = local_roles(
        "train.prompts_per_step=64", "train.validate_every=1", "train.validation_prompts=128"
    )
    smaller = many["generate"]["smaller KV caches"]  # of 64 completions and as many checks of one worker
    assert (smaller.low, smaller.high) == (0, 2 * (32 + 16) * (16 + 8) * 2 * 2 * 96 * 4)
    _, long = local_roles("rollout.num_generations=8", "rollout.max_tokens=512")  # a quarter of the slots
    assert long["train"]["logits"].high == int(1.15 * 2 * 2 * 512 * 512 * 2 * 4)


def test_the_roles_of_engine_local_share_the_machines_memory():
    config = load([])
    roles = local.ENGINE.memory(config)
    assert [role.role for role in roles] == ["train", "generate", "reference"]
    assert [role.role for role in local.ENGINE.memory(load(["train.beta=0"]))] == ["train", "generate"]
    assert local.ENGINE.shortage(config, roles, 64 * GIB) == []
    [warning] = local.ENGINE.shortage(config, roles, GIB // 8)
    assert warning.startswith("memory: 2 processes with ") and "do not fit" in warning
    assert "may not fit" in local.ENGINE.shortage(config, roles, 2 * sum(role.low for role in roles))[0]
