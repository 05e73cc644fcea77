"""Rendered values and the start of training; tests/upstream/mindspeed_rl validates every size and layout."""

from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from pipeline.errors import ConfigError
from stages.engines.mindspeed_rl import train
from stages.engines.mindspeed_rl.engine import notes
from stages.engines.mindspeed_rl.train_yaml import train_config
from tests.stages.engines.mindspeed_rl.jobs import SEVEN, job_of, paths


@pytest.mark.parametrize(("mini_batch", "updates"), [("null", 2), ("96", 8)])
def test_the_warm_up_takes_as_many_updates_as_its_steps(mini_batch, updates):
    """Megatron's schedule counts an update's completions, of train.steps x train.prompts_per_step."""
    overrides = (
        "model=qwen2_5_7b", "layout=dp1_mp4_pp1", "train.prompts_per_step=384", "train.steps=300",
        "rollout.num_generations=8", "train.num_iterations=2", f"engine.mini_batch_size={mini_batch}",
    )  # fmt: skip
    config = train_config(job_of(*overrides, "train.warmup_steps=6"), paths(), False)
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
        "engine=mindspeed_rl", "model.path=/models/qwen", *SEVEN, "engine.use_integrated_worker=false",
        "engine.reference_npus=8", "launcher.cards_per_node=16", "engine.env_scripts=[/cann/set_env.sh]",
        "engine.container=[docker,exec,rl]", "engine.ray_address=10.0.0.1:6379",
        "+engine.env.HCCL_IF_BASE_PORT=30000",
        "+engine.runtime_env={HCCL_SOCKET_IFNAME: eth0, HCCL_IF_BASE_PORT: 30000}",
    )  # fmt: skip
    rendered = train.render(load(overrides).plain(), {}, Path("/run"))
    command = rendered.start
    assert command.workers == 24 and command.ray is not None and command.ray.address == "10.0.0.1:6379"
    assert command.env["HCCL_IF_BASE_PORT"] == "30000" and command.env["RAY_DEDUP_LOGS"] == "0"
    assert command.env_scripts == ("/cann/set_env.sh",)
    assert command.container == ("docker", "exec", "rl")
    program, *arguments = command.program
    assert program == "/path/to/MindSpeed-RL/cli/train_grpo.py"
    assert arguments == ["--config-path=/run/configs", "--config-name=train", "hydra.run.dir=/run/hydra"]
    variables = yaml.safe_load(rendered.files["configs/runtime_env.yaml"])["env_vars"]
    assert all(isinstance(value, str) for value in variables.values())
    assert (variables["HCCL_SOCKET_IFNAME"], variables["HCCL_IF_BASE_PORT"]) == ("eth0", "30000")


@pytest.mark.parametrize(("count", "noted"), [("null", False), ("2", False), ("8", True)])
def test_a_number_of_micro_batches_is_noted(count, noted):
    job = job_of("model=qwen2_5_7b", "layout=dp2_mp2_pp2", f"layout.train.micro_batch_num={count}")
    assert any("layout.train.micro_batch_num=8 changes nothing" in note for note in notes(job)) is noted
