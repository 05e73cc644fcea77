"""Rendered files for every size, number of cards, layout and version."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import ConfigError
from stages.engines.mindspeed_rl import contract
from stages.engines.mindspeed_rl.train_yaml import runtime_env, train_config
from stages.engines.outside import dump
from tests.stages.engines.mindspeed_rl.jobs import DATA, WINDOWS, job_of, paths
from tests.stages.engines.rendered import POWERS, SIZES, layout


@st.composite
def runs(draw):
    size = draw(st.sampled_from(sorted(SIZES)))
    layers, heads, kv_heads, _ = SIZES[size]
    window = draw(st.sampled_from(sorted(WINDOWS)))
    newest = window == "05a90d7"
    mp = draw(st.sampled_from([n for n in POWERS if heads % n == 0 and kv_heads % n == 0]))
    pp = draw(st.sampled_from([n for n in POWERS if n <= min(layers, 64 // mp)]))
    both = newest and heads % (2 * mp) == 0 and 2 * pp * mp <= 64
    cp = draw(st.sampled_from([1, 2] if both else [1]))
    dp = draw(st.sampled_from([n for n in POWERS if n * cp * pp * mp <= 64]))
    optimizer = draw(st.booleans())
    integrated = draw(st.booleans())
    return {
        "size": size, "window": window, "dp": dp, "mp": mp, "pp": pp, "cp": cp, "optimizer": optimizer,
        "group": draw(st.sampled_from([2, 8, 16])), "micro": draw(st.sampled_from([1, 2])),
        "recompute": draw(st.booleans()), "select": draw(st.booleans()),
        "offload": newest and optimizer and draw(st.booleans()),
        "padding": newest and draw(st.booleans()),
        "integrated": integrated,
        "reference": None if integrated else draw(st.sampled_from([None, mp * pp * cp])),
        "reward": None if integrated else draw(st.sampled_from([None, mp * pp * cp])),
        "resume": draw(st.booleans()),
    }  # fmt: skip


def make_job(run):
    text = {key: "null" if value is None else value for key, value in run.items()}
    return job_of(
        f"model=qwen2_5_{run['size']}",
        layout(run),
        f"layout.train.recompute={run['recompute']}",
        f"layout.train.select_recompute={run['select']}",
        f"layout.train.opt_offload={run['offload']}",
        f"layout.train.enable_parallel_optimizer={run['optimizer']}",
        f"engine.contract={run['window']}",
        f"engine.micro_batch_size={run['micro']}",
        f"engine.use_remove_padding={run['padding']}",
        f"engine.use_integrated_worker={run['integrated']}",
        f"engine.reference_npus={text['reference']}",
        f"engine.reward_npus={text['reward']}",
        *(["engine.reward_load=/models/reward"] if run["reward"] else []),
        f"rollout.num_generations={run['group']}",
        "train.prompts_per_step=384",
        "launcher.cards_per_node=64",
    )


@given(runs())
def test_every_rule_holds_in_every_file(run):
    job, window = make_job(run), run["window"]
    text = dump(train_config(job, paths(), run["resume"]))
    config = yaml.safe_load(text)
    roles = ["actor_config"] if run["integrated"] else ["actor_config", "ref_config", "reward_config"]
    assert set(config) == {"model", "megatron_training", *roles, "rl_config", "generate_config"}
    network = config["model"][config["megatron_training"]["model"]]
    megatron = {**config["megatron_training"], **config["actor_config"]}
    rl, rollout = config["rl_config"], config["generate_config"]
    known = contract.declared_keys(str(WINDOWS[window]))  # tests/upstream/mindspeed_rl asks upstream itself
    for role in roles:
        assert {*network, *config["megatron_training"], *config[role]} - {"model"} <= known["megatron"]
    assert set(rl) <= known["rl_config"] and set(rollout) <= known["generate_config"]
    assert megatron["ai_framework"] == "mindspore" and megatron["stage"] == "ray_grpo"
    check_shape(network, run)
    check_cards(config, run, roles)
    check_batches(config, run)
    check_resume(config, run)


def check_shape(network, run):
    layers, heads, kv_heads, tied = SIZES[run["size"]]
    assert (network["num_layers"], network["num_attention_heads"]) == (layers, heads)
    assert network["num_query_groups"] == kv_heads and network["add_qkv_bias"] is True
    assert network["untie_embeddings_and_output_weights"] is not tied


def check_cards(config, run, roles):
    """NPUs divide by TP x PP x CP in every role; generation has no pipeline."""
    unit, rl = run["mp"] * run["pp"] * run["cp"], config["rl_config"]
    named = dict(zip(roles, ("actor_resource", "reference_resource", "reward_resource"), strict=False))
    for role, resource in named.items():
        cut = config[role]
        degrees = cut["tensor_model_parallel_size"] * cut["pipeline_model_parallel_size"]
        assert degrees * cut.get("context_parallel_size", 1) == unit
        if resource in rl:
            assert rl[resource]["num_npus"] % unit == 0
        if "num_layer_list" in cut:
            each = [int(count) for count in cut["num_layer_list"].split(",")]
            assert len(each) == run["pp"] and sum(each) == SIZES[run["size"]][0]
        else:
            assert SIZES[run["size"]][0] % run["pp"] == 0
    assert rl["actor_resource"]["num_npus"] == run["dp"] * unit
    assert rl["use_integrated_worker"] is run["integrated"]
    assert ("reference_resource" in rl) is (not run["integrated"])
    assert ("reward_resource" in rl) is (run["reward"] is not None)
    rollout = config["generate_config"]
    assert rollout["infer_pipeline_parallel_size"] == 1
    assert rl["actor_resource"]["num_npus"] % rollout["infer_tensor_parallel_size"] == 0


def check_batches(config, run):
    """Check what upstream's validate_rl_args divides, computed from the file alone."""
    megatron, rl, rollout = (config[name] for name in ("megatron_training", "rl_config", "generate_config"))
    prompts, group = megatron["global_batch_size"], rl["n_samples_per_prompt"]
    npus = rl["actor_resource"]["num_npus"]
    assert prompts % run["dp"] == 0 and prompts % (npus // rollout["infer_tensor_parallel_size"]) == 0
    assert prompts // run["dp"] * group % config["actor_config"]["micro_batch_size"] == 0
    assert prompts % rl["mini_batch_size"] == 0
    # upstream drops prompts of max_prompt_length (indexed_dataset.py:545)
    longest = rl["max_prompt_length"] - 1 + rollout["sampling_config"]["max_tokens"]
    assert longest <= megatron["seq_length"] <= rollout["max_model_len"]
    assert rollout["max_model_len"] <= rollout["max_num_batched_tokens"]
    assert len(rl["verifier_function"]) == len(rl["verifier_weight"]) > 0
    assert rollout["dtype"] == "bfloat16" and megatron["bf16"] is True


def check_resume(config, run):
    actor, rl = config["actor_config"], config["rl_config"]
    for key in ("finetune", "no_load_optim", "no_load_rng"):
        assert actor[key] is not run["resume"]
    assert actor["save"] == "/run/checkpoints"
    assert actor["load"] == ("/run/checkpoints" if run["resume"] else "/run/models/mcore")
    original = rl.get("integrated_mode_config", {}).get("ref_model_load_path")
    assert original == ("/run/models/mcore" if run["resume"] and run["integrated"] else None)
    if not run["integrated"]:
        assert (
            config["ref_config"]["load"] == "/run/models/mcore" and config["ref_config"]["finetune"] is True
        )


GOLDEN = {  # the shapes of MindSpeed-RL's shipped files
    "7b_a3": (
        "model=qwen2_5_7b", "model.variant=base", "dataset=deepscaler", "layout=dp4_mp2_pp2",
        "layout.generate.model_parallel=1", "launcher.cards_per_node=16",
        "engine.verifier_function=[math_17k_acc]",
    ),
    "7b_a3_667a547": (
        "model=qwen2_5_7b", "model.variant=base", "dataset=deepscaler", "layout=dp4_mp4_pp1",
        "launcher.cards_per_node=16", "engine.contract=667a547", "engine.micro_batch_size=1",
    ),
    "32b_a2": (
        "model=qwen2_5_32b", "model.variant=base", "dataset=deepscaler", "layout=dp1_mp4_pp4",
        "layout.generate.model_parallel=2", "train.prompts_per_step=64", "rollout.num_generations=16",
        "rollout.max_tokens=1024", "tokenize.max_prompt_length=1024", "engine.micro_batch_size=2",
        "engine.max_num_seqs=64", "engine.gpu_memory_utilization=0.6", "engine.use_remove_padding=true",
        "engine.verifier_function=[math_verify_reward]", "train.checkpoint_every=200",
    ),
    "32b_a3": (
        "model=qwen2_5_32b", "model.variant=base", "dataset=deepscaler", "layout=dp1_mp4_pp4",
        "layout.train.offset=[0,1,0,-1]", "layout.generate.model_parallel=2", "launcher.cards_per_node=16",
        "train.prompts_per_step=64", "rollout.num_generations=16", "tokenize.max_prompt_length=1024",
        "engine.micro_batch_size=2", "engine.forward_micro_batch_size=16", "engine.max_num_seqs=64",
        "engine.gpu_memory_utilization=0.6", "engine.use_remove_padding=true",
        "engine.verifier_function=[math_verify_reward]", "train.checkpoint_every=200",
    ),
}  # fmt: skip
SHIPPED = {  # values of the shipped files: cards, tp, pp, layers per stage, generating tp, prompts, group
    "7b_a3": (16, 2, 2, None, 1, 32, 8),
    "7b_a3_667a547": (16, 4, 1, None, 4, 32, 8),
    "32b_a2": (16, 4, 4, None, 2, 64, 16),
    "32b_a3": (16, 4, 4, "16,17,16,15", 2, 64, 16),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_files_of_the_shipped_shapes(name):
    job = job_of(*GOLDEN[name])
    config = train_config(job, paths(), resume=False)
    actor, rl, rollout = (config[f"{item}_config"] for item in ("actor", "rl", "generate"))
    assert SHIPPED[name] == (
        rl["actor_resource"]["num_npus"],
        actor["tensor_model_parallel_size"],
        actor["pipeline_model_parallel_size"],
        actor.get("num_layer_list"),
        rollout["infer_tensor_parallel_size"],
        config["megatron_training"]["global_batch_size"],
        rl["n_samples_per_prompt"],
    )
    for file, values in (("train.yaml", config), ("runtime_env.yaml", runtime_env(job))):
        assert dump(values) == (DATA / "mindspeed_rl_golden" / name / file).read_text()


def test_workers_variables_are_text_and_the_users_override_them():
    given = "+engine.runtime_env={HCCL_SOCKET_IFNAME: eth0, HCCL_IF_BASE_PORT: 30000}"
    variables = yaml.safe_load(dump(runtime_env(job_of(*GOLDEN["7b_a3"], given))))["env_vars"]
    assert all(isinstance(value, str) for value in variables.values())
    assert (variables["HCCL_SOCKET_IFNAME"], variables["HCCL_IF_BASE_PORT"]) == ("eth0", "30000")


@pytest.mark.parametrize(("mini_batch", "updates"), [("null", 2), ("96", 8)])
def test_the_warm_up_takes_as_many_updates_as_its_steps(mini_batch, updates):
    """Megatron's schedule counts an update's completions, of train.steps x train.prompts_per_step."""
    overrides = (
        "model=qwen2_5_7b", "layout=dp1_mp4_pp1", "train.prompts_per_step=384", "train.steps=300",
        "rollout.num_generations=8", "train.num_iterations=2", f"engine.mini_batch_size={mini_batch}",
    )  # fmt: skip
    job = job_of(*overrides, "train.warmup_steps=6")
    config = train_config(job, paths(), False)
    actor, training, rl = config["actor_config"], config["megatron_training"], config["rl_config"]
    assert training["global_batch_size"] // rl["mini_batch_size"] * rl["epochs"] == updates
    horizon = training["train_iters"] * training["global_batch_size"]
    per_update = rl["mini_batch_size"] * rl["n_samples_per_prompt"]
    assert actor["lr_warmup_fraction"] * horizon / per_update == pytest.approx(6)
    most = (300 * 384 - 1) // per_update
    job_of(*overrides, f"train.warmup_steps={most}")
    with pytest.raises(ConfigError, match=f"use at most {most}"):
        job_of(*overrides, f"train.warmup_steps={most + 1}")
