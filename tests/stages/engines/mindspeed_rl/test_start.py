import pytest

from stages.engines.mindspeed_rl import start
from stages.engines.mindspeed_rl.train import paths_of
from tests.stages.engines.mindspeed_rl.jobs import HOME, SEVEN, WINDOWS, job_of, paths

LLM = HOME / "llm"


def options(program):
    """Argument -> value; flags -> empty."""
    found, words = {}, list(program[1:])
    while words:
        name = words.pop(0)
        found[name] = words.pop(0) if words and not words[0].startswith("--") else ""
    return found


@pytest.mark.parametrize(("window", "home"), [("667a547", WINDOWS["667a547"]), ("05a90d7", LLM)])
def test_weights_are_cut_as_training_cuts_them(window, home):
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
    for begun in (there, back):
        assert begun.workers == 0 and begun.directory == str(home) and begun.python_path == (str(home),)
        assert begun.python == "/envs/llm/bin/python" and begun.env["A"] == "1"
        assert begun.program[0].endswith("convert_ckpt.py") and begun.program[0].startswith(str(home))
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


def test_equal_stages_need_no_list():
    job = job_of(*SEVEN)
    back = start.to_huggingface(job.engine, job.model, job.actor, paths().weights, paths().tokenizer)
    assert "--num-layer-list" not in options(back.program)


def test_training_is_told_of_every_card_and_of_the_users_environment():
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
    begun = start.train(job, paths())
    assert begun.workers == 24 and begun.ray is not None and begun.ray.address == "10.0.0.1:6379"
    assert begun.env["HCCL_IF_BASE_PORT"] == "30000" and begun.env["RAY_DEDUP_LOGS"] == "0"
    assert begun.env_scripts == ("/cann/set_env.sh",)
    assert begun.container == ("docker", "exec", "rl")
    program, *arguments = begun.program
    assert program == "/path/to/MindSpeed-RL/cli/train_grpo.py"
    assert arguments == ["--config-path=/run/configs", "--config-name=train", "hydra.run.dir=/run/hydra"]


def test_data_is_made_of_a_name_that_upstream_takes_off_its_arguments():
    begun = start.preprocess(job_of(*SEVEN).engine, paths_of(paths().root).root)
    assert begun.program[1:] == ("train", "--config-path=/run/configs", "hydra.run.dir=/run/hydra")
