from pipeline.config.load import load
from stages.engines import local
from stages.grpo.memory import estimate
from stages.models.memory import GIB, elements

SMALL = [
    "layout=dp2_mp1_pp1", "train.prompts_per_step=4", "rollout.num_generations=2", "rollout.max_tokens=8",
]  # fmt: skip


def roles(*overrides):
    config = load([*SMALL, *overrides])
    actual = estimate(config.model, config.layout, config.train, config.rollout, 16)
    return config, {role.role: {term.name: term for term in role.terms} for role in actual}


def test_all_is_float32_whatever_the_weights_are_stored_in():
    for dtype in ("float32", "bfloat16"):
        config, actual = roles(f"model.torch_dtype={dtype}", f"model.param_init_type={dtype}")
        size = 4 * config.model.num_parameters
        assert elements(config.model, config.layout.train)[0].held * 4 == size
        assert [actual["train"][name].low for name in ("weights", "gradients", "optimizer")] == [
            size, size, 2 * size,
        ]  # fmt: skip
        assert actual["reference"]["weights"].low == size
        assert actual["generate"]["weights"].high == 0  # one copy with training's, which are cut alike
    apart, actual = roles(
        "layout=dp1_mp2_pp1", "layout.generate.data_parallel=2", "layout.generate.model_parallel=1"
    )
    assert actual["generate"]["weights"].low == 4 * apart.model.num_parameters


def test_activations_and_cache_by_hand():
    """Tiny: hidden 192, 2 layers, 4 heads of 48, 2 key-value heads, intermediate 640, vocabulary 512."""
    _, actual = roles()
    answers, questions = 2 * 2 * 8, 2 * 16  # of one worker
    token = 24 * 192 + 3 * (192 + 2 * 96) + 4 * 640
    scores = 4 * (answers * (16 + 8) + questions * 16)
    stored = 4 * 2 * ((answers + questions) * token + 2 * scores)
    term = actual["train"]["activations"]
    assert (term.low, term.high) == (int(0.85 * stored), int(1.15 * stored))
    assert actual["train"]["logits"].high == int(1.15 * answers * 512 * 2 * 4)
    assert actual["generate"]["KV cache"].low == (answers + 2 * questions) * 2 * 2 * 96 * 4
    _, checked = roles("train.validate_every=1", "train.validation_prompts=6")
    assert checked["generate"]["checks' cache"].low == 3 * (16 + 8) * 2 * 2 * 96 * 4  # of one worker
    assert "checks' cache" not in actual["generate"]


def test_the_roles_of_engine_local_share_the_machines_memory():
    config = load([])
    roles = local.memory(config)
    assert [role.role for role in roles] == ["train", "generate", "reference"]
    assert [role.role for role in local.memory(load(["train.beta=0"]))] == ["train", "generate"]
    assert local.shortage(config, roles, 64 * GIB) == []
    [warning] = local.shortage(config, roles, GIB // 8)
    assert warning.startswith("memory: 2 processes with ") and "do not fit" in warning
    assert "may not fit" in local.shortage(config, roles, 2 * sum(role.low for role in roles))[0]
