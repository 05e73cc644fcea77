"""DeepSeek-V3's entry point, skipped stages and memory; test_golden.py has its files."""

import pytest

from pipeline.config.load import load
from stages.engines.mindrlhf.files import arguments
from stages.engines.mindrlhf.job import Job
from stages.engines.mindrlhf.memory import estimate
from stages.engines.mindrlhf.stage import rendered
from stages.models.memory import GIB
from tests.stages.engines.mindrlhf.jobs import job_of, paths

TUTORIAL = ("experiment=mindrlhf_deepseek_v3", "model.path=/models/deepseek", "dataset=arith")


@pytest.fixture(scope="module")
def job():
    return Job.from_run(load(TUTORIAL))


def test_deepseek_has_a_separate_entry_point_and_names(job):
    assert job.model.num_parameters / 1e9 == pytest.approx(671.0, abs=0.1)  # the model card
    start = rendered(job, paths(job)).start
    assert start.program[0].endswith("examples/grpo/deepseekv3_grpo_tutorial/main.py")
    assert {"--model_name=deepseek", "--tokenizer_type=deepseek"} <= set(arguments(job, paths(job), False))
    assert start.env["MINDFORMERS_MODEL_CONFIG"] == "/run/configs/predict.yaml"
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
