"""The stages of a plan with engine.sft=mindformers, and their fingerprints."""

from pathlib import Path

import pytest

from pipeline.config.load import load
from pipeline.plan.graph import plan

HOME = Path(__file__).parents[3] / "data" / "mindformers_standin"


@pytest.mark.parametrize("engine", ["local", "mindrlhf", "mindrlhf_one_stage"])
def test_every_engine_reads_its_result_instead_of_the_fetched_model(engine):
    planned = plan(load([f"engine={engine}", "engine.sft=mindformers"]), lambda path: "0")
    names = [spec.name for spec in planned.specs]
    assert names[:4] == ["fetch", "fetch_dataset", "tokenize", "sft"]
    for spec in planned.specs:
        sources = {key.stage for key in spec.inputs.values()}
        assert spec.name in ("tokenize", "sft", "report") or "fetch" not in sources
    grpo = {name: key.stage for name, key in planned.spec("grpo").inputs.items()}
    assert grpo["fetch"] == "sft" and grpo.get("weights") == (None if engine == "mindrlhf" else "split")
    if engine == "local":
        assert planned.config.split.roles == ("train", "generate", "reference")


@pytest.mark.parametrize(
    "override", ["mindformers.home=null", "+mindformers.env.X=1", "mindformers.python=/p"]
)
def test_machine_settings_do_not_change_the_fingerprint(override):
    base = ["engine.sft=mindformers", f"mindformers.home={HOME}"]
    first, second = (plan(load([*base, *more]), lambda path: "0") for more in ([], [override]))
    assert first.spec("sft").key == second.spec("sft").key
