"""DeepSeek-V3's entry point, skipped stages and memory; test_golden.py has its files."""

import json
from pathlib import Path

import pytest
import yaml

from pipeline.config.load import load
from stages.base.errors import ConfigError
from stages.engines.mindrlhf.files import arguments
from stages.engines.mindrlhf.job import Job
from stages.engines.mindrlhf.memory import estimate
from stages.engines.mindrlhf.stage import rendered
from stages.models.memory import GIB
from tests.stages.engines.mindrlhf.jobs import job_of, paths

CONFIGS = Path(__file__).parents[3] / "data" / "config_json"
TUTORIAL = ("experiment=mindrlhf_deepseek_v3", "model.path=/models/deepseek", "dataset=arith")


@pytest.fixture(scope="module")
def job():
    return Job.from_run(load(TUTORIAL))


def test_deepseek_has_a_separate_entry_point_and_names(job):
    assert job.model.num_parameters / 1e9 == pytest.approx(671.0, abs=0.1)  # the model card
    made = rendered(job, paths(job))
    start = made.start
    assert start.program[0].endswith("examples/grpo/deepseekv3_grpo_tutorial/main.py")
    assert {"--model_name=deepseek", "--tokenizer_type=deepseek"} <= set(arguments(job, paths(job), False))
    assert start.env["MINDFORMERS_MODEL_CONFIG"] == "/run/configs/predict.yaml"
    train, generate = (yaml.safe_load(made.files[f"configs/{name}.yaml"]) for name in ("finetune", "predict"))
    same = ("extend_method", "scaling_factor")  # or the policy would not be the model that generates
    assert train["moe_config"].items() >= generate["moe_config"].items()
    assert all(train["model"]["model_config"][key] == generate["model"]["model_config"][key] for key in same)
    seven = job_of("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
    assert "MINDFORMERS_MODEL_CONFIG" not in rendered(seven, paths(seven)).start.env


def test_experts_are_divided_among_cards(job):
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


def test_a_small_model_of_its_architecture_is_rendered_from_its_config(tmp_path):
    """MLA, routed and shared experts: the rendered shape is that of config.json in model.path."""
    published = json.loads((CONFIGS / "deepseek_v3.json").read_text())
    small = {
        "hidden_size": 64, "intermediate_size": 128, "moe_intermediate_size": 32, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 4, "n_routed_experts": 8, "num_experts_per_tok": 2,
        "n_shared_experts": 2, "n_group": 2, "topk_group": 1, "q_lora_rank": 32, "kv_lora_rank": 16,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 12, "first_k_dense_replace": 2,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(published | small))
    run = load([
        "engine=mindrlhf", "reward=think", "dataset=arith", f"model.path={tmp_path}", "layout=dp2_mp2_pp1",
        "engine.load_ckpt_format=ms_safetensors",
    ])  # fmt: skip
    made = rendered(Job.from_run(run), paths(Job.from_run(run)))
    model = yaml.safe_load(made.files["configs/finetune.yaml"])
    config, experts = model["model"]["model_config"], model["moe_config"]
    same = (
        "hidden_size",
        "intermediate_size",
        "q_lora_rank",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "v_head_dim",
    )
    assert {key: config[key] for key in same} == {key: small[key] for key in same}
    assert (config["num_layers"], config["num_heads"]) == (4, 4)
    assert (experts["expert_num"], experts["num_experts_chosen"], experts["shared_expert_num"]) == (8, 2, 2)
    assert experts["first_k_dense_replace"] == 2 and experts["moe_intermediate_size"] == 32
    assert (experts["n_group"], experts["topk_group"]) == (2, 1)
    assert "deepseekv3_grpo_tutorial" in made.start.program[0]


def test_without_a_directory_the_message_names_it():
    with pytest.raises(ConfigError, match=r"model\.path.*is required") as refused:
        load(TUTORIAL[:1])
    assert "give model.path=DIR" in str(refused.value)
