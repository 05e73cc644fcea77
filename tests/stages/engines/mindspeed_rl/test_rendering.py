"""Rendered files of the shipped shapes; tests/upstream/mindspeed_rl validates every size and layout."""

from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from pipeline.errors import ConfigError
from stages.engines.mindspeed_rl import train
from stages.engines.mindspeed_rl.engine import notes
from stages.engines.mindspeed_rl.train_yaml import runtime_env, train_config
from stages.engines.outside import dump
from tests.stages.engines.mindspeed_rl.jobs import DATA, SEVEN, job_of, paths

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
    override = "+engine.runtime_env={HCCL_SOCKET_IFNAME: eth0, HCCL_IF_BASE_PORT: 30000}"
    variables = yaml.safe_load(dump(runtime_env(job_of(*GOLDEN["7b_a3"], override))))["env_vars"]
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


def test_training_gets_every_card_and_the_users_environment():
    overrides = (
        "engine=mindspeed_rl",
        "model.path=/models/qwen",
        *SEVEN,
        "engine.use_integrated_worker=false",
        "engine.reference_npus=8",
        "launcher.cards_per_node=16",
        "engine.env_scripts=[/cann/set_env.sh]",
        "engine.container=[docker,exec,rl]",
        "engine.ray_address=10.0.0.1:6379",
        "+engine.env.HCCL_IF_BASE_PORT=30000",
    )
    command = train.render(load(overrides).plain(), {}, Path("/run")).start
    assert command.workers == 24 and command.ray is not None and command.ray.address == "10.0.0.1:6379"
    assert command.env["HCCL_IF_BASE_PORT"] == "30000" and command.env["RAY_DEDUP_LOGS"] == "0"
    assert command.env_scripts == ("/cann/set_env.sh",)
    assert command.container == ("docker", "exec", "rl")
    program, *arguments = command.program
    assert program == "/path/to/MindSpeed-RL/cli/train_grpo.py"
    assert arguments == ["--config-path=/run/configs", "--config-name=train", "hydra.run.dir=/run/hydra"]


@pytest.mark.parametrize(("count", "noted"), [("null", False), ("2", False), ("8", True)])
def test_a_number_of_micro_batches_is_noted(count, noted):
    job = job_of("model=qwen2_5_7b", "layout=dp2_mp2_pp2", f"layout.train.micro_batch_num={count}")
    assert any("layout.train.micro_batch_num=8 changes nothing" in note for note in notes(job)) is noted
