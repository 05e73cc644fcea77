import pytest

from stages.engines.mindspeed_rl import start
from tests.stages.engines.mindspeed_rl.jobs import HOME, SEVEN, WINDOWS, job_of, paths

LLM = HOME / "llm"


def options(program):
    """Return argument -> value; the value of flags is empty."""
    result, words = {}, list(program[1:])
    while words:
        name = words.pop(0)
        result[name] = words.pop(0) if words and not words[0].startswith("--") else ""
    return result


@pytest.mark.parametrize(("window", "home"), [("667a547", WINDOWS["667a547"]), ("05a90d7", LLM)])
def test_weights_are_sharded_as_in_training(window, home):
    job = job_of(
        "model=qwen2_5_32b",
        "layout=dp1_mp4_pp4",
        "layout.train.offset=[0,1,0,-1]",
        "layout.generate.model_parallel=2",
        "engine.micro_batch_size=2",
        f"engine.contract={window}",
        f"engine.mindspeed_rl_home={WINDOWS[window]}",
        f"engine.mindspeed_llm_home={LLM}",
        "engine.python=/envs/rl/bin/python",
        "engine.convert_python=/envs/llm/bin/python",
        "+engine.convert_env.A=1",
    )
    hf, mcore = paths().tokenizer, paths().weights
    there = start.to_mcore(job.engine, job.model, job.actor, hf, mcore)
    back = start.to_huggingface(job.engine, job.model, job.actor, mcore, hf)
    for command in (there, back):
        assert command.workers == 0 and command.directory == str(home) and command.python_path == (str(home),)
        assert command.python == "/envs/llm/bin/python" and command.env["A"] == "1"
        assert command.program[0].endswith("convert_ckpt.py") and command.program[0].startswith(str(home))
    assert options(there.program) == {
        "--use-mcore-models": "", "--model-type": "GPT", "--model-type-hf": "llama2",
        "--load-model-type": "hf", "--save-model-type": "mg", "--target-tensor-parallel-size": "4",
        "--target-pipeline-parallel-size": "4", "--add-qkv-bias": "", "--load-dir": str(hf),
        "--save-dir": str(mcore), "--tokenizer-model": f"{hf}/tokenizer.json", "--params-dtype": "bf16",
        "--num-layer-list": "16,17,16,15",
    }  # fmt: skip
    assert options(back.program) == {
        "--use-mcore-models": "", "--model-type": "GPT", "--model-type-hf": "llama2",
        "--load-model-type": "mg", "--save-model-type": "hf", "--target-tensor-parallel-size": "1",
        "--target-pipeline-parallel-size": "1", "--add-qkv-bias": "", "--load-dir": str(mcore),
        "--save-dir": str(hf), "--params-dtype": "bf16",
        **({} if window == "667a547" else {"--num-layer-list": "16,17,16,15"}),  # the earlier one refuses it
    }  # fmt: skip


def test_equal_stages_need_no_layer_list():
    job = job_of(*SEVEN)
    back = start.to_huggingface(job.engine, job.model, job.actor, paths().weights, paths().tokenizer)
    assert "--num-layer-list" not in options(back.program)


def test_training_gets_every_card_and_the_users_environment():
    job = job_of(
        *SEVEN,
        "engine.use_integrated_worker=false",
        "engine.reference_npus=8",
        "launcher.cards_per_node=16",
        "engine.env_scripts=[/cann/set_env.sh]",
        "engine.container=[docker,exec,rl]",
        "engine.ray_address=10.0.0.1:6379",
        "+engine.env.HCCL_IF_BASE_PORT=30000",
    )
    command = start.train(job, paths())
    assert command.workers == 24 and command.ray is not None and command.ray.address == "10.0.0.1:6379"
    assert command.env["HCCL_IF_BASE_PORT"] == "30000" and command.env["RAY_DEDUP_LOGS"] == "0"
    assert command.env_scripts == ("/cann/set_env.sh",)
    assert command.container == ("docker", "exec", "rl")
    program, *arguments = command.program
    assert program == "/path/to/MindSpeed-RL/cli/train_grpo.py"
    assert arguments == ["--config-path=/run/configs", "--config-name=train", "hydra.run.dir=/run/hydra"]


def test_the_name_of_the_dataset_comes_first():
    command = start.preprocess(job_of(*SEVEN).engine, paths().root)
    assert command.program[1:] == ("train", "--config-path=/run/configs", "hydra.run.dir=/run/hydra")
