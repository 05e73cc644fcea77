"""Bytes counted by hand."""

from stages.engines.mindspeed_rl import memory
from stages.models.memory import warnings
from tests.stages.engines.mindspeed_rl.jobs import SEVEN, job_of

PARAMETERS = 7_615_616_512
"""Of Qwen2.5-7B: its model card says 7.61 billion."""


def term(name, role, *overrides):
    job = job_of("model=qwen2_5_7b", *overrides)
    return next(term.high for term in memory.estimate(job)[role].terms if term.name == name)


def test_bytes_per_parameter_on_a_single_card_are_megatrons():
    single = ("layout=dp1_mp1_pp1",)
    assert term("weights", 0, *single) == 2 * PARAMETERS
    assert term("gradients", 0, *single) == 4 * PARAMETERS
    assert term("optimizer", 0, *single) == 12 * PARAMETERS
    assert term("weights", 2, *single) == 2 * PARAMETERS


def test_the_distributed_optimizer_is_divided_among_replicas_only():
    single, four = (term("optimizer", 0, f"layout=dp{dp}_mp1_pp1") for dp in (1, 4))
    assert four == single // 4
    complete = term("optimizer", 0, "layout=dp4_mp1_pp1", "layout.train.enable_parallel_optimizer=false")
    assert complete == single
    assert term("weights", 0, "layout=dp4_mp1_pp1") == 2 * PARAMETERS


def test_a_role_that_does_not_fit_is_reported():
    job = job_of(*SEVEN, "engine.device_memory_gib=16")
    assert any("train does not fit" in warning for warning in warnings(memory.estimate(job), 16))
    ample = job_of(*SEVEN, "engine.device_memory_gib=512", "layout.train.recompute=true")
    assert warnings(memory.estimate(ample), 512) == []
