from pathlib import Path

from pipeline.config.load import load
from stages.engines.mindspeed_rl import train
from tests.stages.engines.mindspeed_rl.jobs import SEVEN


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
