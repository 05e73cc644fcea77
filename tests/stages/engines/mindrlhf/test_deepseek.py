"""DeepSeek-V3's files: held to its config.json, to the facts, and to what they were."""

import pytest
import yaml

from pipeline.config.load import load
from pipeline.plan.graph import plan
from stages.base.files import file_digest
from stages.engines.mindrlhf.files import all_configs
from stages.engines.mindrlhf.job import Job
from stages.engines.mindrlhf.memory import estimate
from stages.engines.mindrlhf.stage import arguments, rendered
from stages.engines.outside import dump
from stages.models.memory import GIB
from tests.stages.engines.mindrlhf.jobs import DATA, job_of, paths
from tests.stages.engines.mindrlhf.test_rendering import check_samples

TUTORIAL = ["experiment=mindrlhf_deepseek_v3", "model.path=/models/deepseek", "dataset=arith"]


def tutorial(*overrides):
    return Job.from_run(load([*TUTORIAL, *overrides]))


def test_the_shape_has_the_published_number_of_parameters():
    assert tutorial().model.num_parameters / 1e9 == pytest.approx(671.0, abs=0.1)  # the model card


def test_rendered_files_equal_the_golden_ones():
    job = tutorial()
    for file, values in all_configs(job, paths(job), resume=False).items():
        golden = DATA / "mindrlhf_golden" / "deepseek_v3_512cards" / file
        assert dump(values) == golden.read_text(), f"{golden} differs; is the change meant?"


def test_rules_hold_in_the_files():
    golden = DATA / "mindrlhf_golden" / "deepseek_v3_512cards"
    files = {file.name: yaml.safe_load(file.read_text()) for file in golden.iterdir()}
    grpo = files["grpo_config.yaml"]
    check_samples(grpo, pp=16)
    assert "deepseek" in grpo["rl_config"]["model_name"]  # chooses the resharding of transform_worker.py
    roles = {"finetune": "actor_config", "reference": "ref_config", "predict": "generate_config"}
    for file, role in roles.items():
        degrees, model = grpo[role]["parallel_config"], files[f"{file}.yaml"]["model"]["model_config"]
        product = degrees["data_parallel"] * degrees["model_parallel"]
        assert product * degrees["pipeline_stage"] == 512
        assert product % degrees["expert_parallel"] == 0
        assert files[f"{file}.yaml"]["moe_config"]["expert_num"] % degrees["expert_parallel"] == 0
        assert (model["num_layers"], model["kv_lora_rank"], model["vocab_size"]) == (61, 512, 129280)
        offset = grpo[role]["offset"]  # it wins over the model file's
        assert offset == model["offset"]
        assert 61 // degrees["pipeline_stage"] * degrees["pipeline_stage"] + sum(offset or [0]) == 61 or (
            degrees["pipeline_stage"] == 1
        )


def test_deepseek_has_a_separate_entry_point_and_names():
    job = tutorial()
    begun = rendered(job, paths(job)).start
    assert begun.program[0].endswith("examples/grpo/deepseekv3_grpo_tutorial/main.py")
    assert {"--model_name=deepseek", "--tokenizer_type=deepseek"} <= set(arguments(job, paths(job), False))
    assert begun.env["MINDFORMERS_MODEL_CONFIG"] == "/run/configs/predict.yaml"
    seven = job_of("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
    assert "MINDFORMERS_MODEL_CONFIG" not in rendered(seven, paths(seven)).start.env


@pytest.mark.parametrize("form", ["hf_safetensors", "ms_safetensors"])
def test_stages_that_mindformers_script_replaces_are_skipped(form):
    made = plan(load([*TUTORIAL, f"engine.load_ckpt_format={form}"]), file_digest)
    skipped = {"convert", "strategy", "split", "evaluate", "export"}
    assert made.skipped.keys() == skipped | {"sft"}
    assert all("model.path" in made.skipped[stage] for stage in skipped - {"evaluate"})
    assert made.spec("grpo").inputs.keys() == {"fetch", "tokenize"}


def test_experts_are_divided_among_cards():
    job = tutorial()
    roles = {item.role: item for item in estimate(job)}
    (weights,) = (term for term in roles["generate"].terms if term.name == "weights")
    # a layer's 256 experts on 512 cards: one a card; routers, norms and what compresses are whole on each
    expert, hidden = 3 * 2048 * 7168, 7168
    cut = 128 * (1536 * 192 + 512 * 256 + 128 * hidden) + 3 * hidden * 2048
    complete = (1536 + 576) * hidden + 1536 + 512 + 2 * hidden
    dense = 3 * (3 * hidden * 18432 - 3 * hidden * 2048) // 128
    sparse = 58 * (expert + 256 * hidden + 256)
    held = 61 * (cut // 128 + complete) + dense + sparse + 2 * 129280 * hidden // 128 + hidden
    assert weights.low == 2 * held
    assert roles["train"].fits(64 * GIB) == "yes"
