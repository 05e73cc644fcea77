"""engine=mindspeed_rl in plans: its row of the table, its files, what a run needs, what an identity holds."""

import shutil
from pathlib import Path

from pipeline import engines
from pipeline.config.load import load
from pipeline.fingerprint import file_digest
from pipeline.plan.graph import plan

STANDIN = Path(__file__).parents[1] / "data" / "mindspeed_rl_standin"
HEAD = f"engine.mindspeed_rl_home={STANDIN / 'head'}"
GIVEN = (
    "engine=mindspeed_rl",
    "layout=dp2_mp2_pp2",
    "dataset=gsm8k",
    f"dataset.path={STANDIN.parent / 'gsm8k'}",
    "model.max_position_embeddings=8192",
)
CONVERTED = ("convert", "grpo", "export", "evaluate")


def planned(*overrides):
    return plan(load([*GIVEN, *overrides]), file_digest)


def test_inputs_of_each_stage():
    specs = {spec.name: spec for spec in planned().specs}
    reads = {name: {key.stage for key in specs[name].inputs.values()} for name in CONVERTED}
    assert reads == {
        "convert": {"fetch"},
        "grpo": {"convert", "tokenize", "fetch"},
        "export": {"grpo", "fetch"},
        "evaluate": {"fetch", "export", "tokenize"},
    }
    assert specs["evaluate"].inputs["after"].stage == "export"
    assert specs["grpo"].stage.workers == 8
    apart = planned("engine.use_integrated_worker=false", "engine.reference_npus=4")
    assert apart.spec("grpo").stage.workers == 12


def changed(*overrides):
    before, after = (
        {spec.name: spec.key for spec in item.specs} for item in (planned(), planned(*overrides))
    )
    return {name for name, key in after.items() if before[name] != key}


def test_only_keys_that_a_stage_reads_are_fingerprinted(tmp_path):
    paths = ["engine.python=/x/python", "engine.convert_python=/y/python", "engine.ray_dashboard_port=8260"]
    paths += ["+engine.convert_env.A=1", "+engine.runtime_env.HCCL_SOCKET_IFNAME=eth0", "engine.workers=2"]
    paths += ["engine.ray_address=10.0.0.1:6379", "engine.cpus_per_npu=2", "engine.device_memory_gib=30"]
    assert changed(*paths, f"engine.mindspeed_llm_home={tmp_path}") == set()
    after_grpo = {"grpo", "export", "evaluate", "report"}
    assert changed("engine.gpu_memory_utilization=0.5") == after_grpo
    assert changed("layout.generate.model_parallel=1") == after_grpo
    assert changed("engine.prompt_type=qwen_math_r1") == {"tokenize", *after_grpo}
    assert changed("engine.contract=667a547") == {"convert", "tokenize", *after_grpo}
    assert changed("layout=dp4_mp1_pp2") == {"convert", *after_grpo}


def test_a_changed_template_reruns_tokenize(tmp_path):
    home = Path(shutil.copytree(STANDIN / "head", tmp_path / "home"))
    before = planned(f"engine.mindspeed_rl_home={home}")
    assert before.spec("convert").key == planned(HEAD).spec("convert").key  # moved, not changed
    file = home / "configs/model/templates.json"
    file.write_text(file.read_text().replace("Think first", "Think hard"))
    after = planned(f"engine.mindspeed_rl_home={home}")
    assert before.spec("tokenize").key != after.spec("tokenize").key
    assert before.spec("convert").key == after.spec("convert").key


def test_a_run_needs_checkout_converter_and_machines():
    def missing(*overrides):
        config = load([*GIVEN, *overrides])
        return [problem.path for problem in engines.needs(config)]

    llm = f"engine.mindspeed_llm_home={STANDIN / 'llm'}"
    assert missing() == ["engine.mindspeed_rl_home", "engine.mindspeed_llm_home"]
    assert missing(HEAD, llm) == []
    assert missing(f"engine.mindspeed_rl_home={STANDIN / 'window'}") == []
    apart = ["engine.use_integrated_worker=false", "train.prompts_per_step=64"]
    assert missing(HEAD, llm, *apart, "launcher.cards_per_node=8") == ["cards"]
    inside = ["launcher=slurm", "engine.container=[docker,exec,rl]"]
    assert missing(HEAD, llm, *inside) == ["engine.container"]  # nothing would run in it


def test_mindformers_may_come_before_everything():
    specs = {spec.name: spec for spec in planned("engine.sft=mindformers").specs}
    assert specs["convert"].inputs["fetch"].stage == "sft"
    assert specs["export"].inputs["fetch"].stage == "sft"
    assert specs["sft"].inputs["tokenize"] == specs["tokenize"].key
