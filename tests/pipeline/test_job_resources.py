"""What the jobs of stages reserve on a Ray cluster, and stages that need more than a job has."""

import pytest

from pipeline.errors import ConfigError
from pipeline.plan import job_resources
from pipeline.run.run import prepare_plan

RAY = ("launcher=ray", "launcher.ray_address=http://head:8265")
VERL = ("experiment=verl_7b", "model.path=/models/qwen", "cards=8", "layout=dp8_mp1_pp1")
INSIDE = "engine.ray_address='10.0.0.1:6379'"


def planned(*overrides):
    plan, _ = prepare_plan([*RAY, *overrides])
    return plan


def reserved(*overrides):
    """Return stage -> resources of its job."""
    plan = planned(*overrides)
    return {spec.name: job_resources.resources(spec.stage, plan.config) for spec in plan.specs}


@pytest.fixture(autouse=True)
def here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def test_a_stage_reserves_its_cards_or_a_cpu():
    local = reserved("layout=dp2_mp1_pp1")
    assert local["tokenize"] == local["export"] == {"CPU": 1}
    assert local["grpo"] == {"CPU": 2}  # engine=local computes on a CPU
    verl = reserved(*VERL, "evaluate.program=vllm", "evaluate.python=/python")
    assert (verl["convert"] if "convert" in verl else verl["fetch"]) == {"CPU": 1}
    assert verl["grpo"] == verl["evaluate"] == {"NPU": 8}
    assert reserved(*VERL, "engine.device=cuda")["grpo"] == {"GPU": 8}


def test_settings_replace_what_a_stage_would_reserve():
    chosen = ("launcher.ray.grpo={NPU: 8, CPU: 64}", "launcher.ray.fetch={}")
    made = reserved(*VERL, *chosen)
    assert made["grpo"] == {"NPU": 8, "CPU": 64} and made["fetch"] == {}


def test_the_driver_of_an_engine_on_the_cluster_holds_nothing_that_its_workers_need():
    made = reserved(*VERL, INSIDE, "evaluate.program=vllm", "evaluate.python=/python")
    assert made["grpo"] == {} and made["evaluate"] == {"NPU": 8}
    with pytest.raises(ConfigError, match="would hold NPUs that the workers") as refused:
        planned(*VERL, INSIDE, "launcher.ray.grpo={NPU: 8}")
    assert [problem.path for problem in refused.value.problems] == ["launcher.ray.grpo.NPU"]
    assert reserved(*VERL, INSIDE, "launcher.ray.grpo={CPU: 4}")["grpo"] == {"CPU": 4}


def test_a_job_has_one_node_unless_it_is_a_driver():
    """Workers on the cluster are on any nodes."""
    few = (*VERL, "launcher.cards_per_node=4")
    with pytest.raises(ConfigError, match="a Ray job runs on one") as refused:
        planned(*few)
    (problem,) = refused.value.problems
    assert (problem.path, problem.value) == ("cards", 8)
    assert "grpo needs 2 nodes" in problem.rule and "engine.ray_address=HOST:PORT" in problem.remedy
    for accepted in ((*few, INSIDE), (*few, "launcher.stages=[fetch]"), VERL):
        plan = planned(*accepted)
        jobs = [spec.stage for spec in plan.specs if plan.config.launcher.runs_as_job(spec.name)]
        assert jobs and {job_resources.nodes(stage, plan.config) for stage in jobs} == {1}
