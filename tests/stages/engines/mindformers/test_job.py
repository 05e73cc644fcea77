"""The rendered file and arguments, and the stages of a plan; tests/upstream/mindformers runs upstream."""

import pytest

from pipeline.config.load import load
from pipeline.plan.graph import plan
from stages.engines.mindformers.finetune_yaml import finetune
from stages.engines.mindformers.stage import arguments
from stages.engines.outside import dump
from tests.stages.engines.mindformers.jobs import DATA, PATHS, job_of

SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2", "tokenize.sft_length=4096")


def test_the_stand_in_declares_every_passed_argument():
    declared = (DATA / "mindformers_standin" / "run_mindformer.py").read_text()
    passed = arguments(job_of(*SEVEN), PATHS, resume=True)
    assert all(f'"{name}"' in declared for name in passed[::2])


@pytest.mark.parametrize("engine", ["local", "mindrlhf", "mindrlhf_one_stage"])
def test_every_engine_reads_its_result_instead_of_the_fetched_model(engine):
    planned = plan(load([f"engine={engine}", "engine.sft=mindformers"]), lambda path: "0")
    names = [spec.name for spec in planned.specs]
    assert names[:4] == ["fetch", "fetch_dataset", "tokenize", "sft"]
    for spec in planned.specs:
        sources = {key.stage for key in spec.inputs.values()}
        assert spec.name in ("tokenize", "sft", "report") or "fetch" not in sources
    grpo = planned.spec("grpo").inputs
    assert {"local": ("split", "sft"), "mindrlhf": (None, "sft"), "mindrlhf_one_stage": ("split", "sft")}[
        engine
    ] == (grpo["weights"].stage if "weights" in grpo else None, grpo["fetch"].stage)
    if engine == "local":
        assert planned.config.split.roles == ("train", "generate", "reference")


@pytest.mark.parametrize(
    "override", ["mindformers.home=null", "+mindformers.env.X=1", "mindformers.python=/p"]
)
def test_machine_settings_do_not_change_the_fingerprint(override):
    base = ["engine.sft=mindformers", f"mindformers.home={DATA / 'mindformers_standin'}"]
    first, second = (plan(load([*base, *more]), lambda path: "0") for more in ([], [override]))
    assert first.spec("sft").key == second.spec("sft").key


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("7b_8cards", ["model=qwen2_5_7b", "layout=dp1_mp4_pp2", "tokenize.sft_length=4096"]),
        ("0_5b_1card", ["model=qwen2_5_0_5b", "layout=dp1_mp1_pp1", "tokenize.sft_length=2048"]),
    ],
)
def test_rendered_files_equal_the_golden_ones(name, overrides):
    golden = DATA / "mindformers_golden" / f"{name}.yaml"
    text = dump(finetune(job_of(*overrides), PATHS, resume=False))
    assert text == golden.read_text(), f"{golden} differs; is the change meant?"
