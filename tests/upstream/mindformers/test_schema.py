"""The keys that mindformers' own classes have, read without importing them, are those that we render."""

from pathlib import Path

import pytest

from pipeline.config.load import load
from stages.engines.mindformers.checkout import model_file_schema
from stages.engines.mindformers.engine import ENGINE
from stages.engines.mindformers.files import finetune
from stages.engines.mindformers.job import Paths
from stages.models.families import FAMILIES

pytestmark = [pytest.mark.upstream, pytest.mark.core]
RUN = ("engine=mindrlhf", "engine.sft=mindformers", "model=qwen2_5_7b", "model.path=/models/qwen")


def test_every_rendered_key_is_known_with_its_type(mindformers):
    job = ENGINE.job(load([*RUN, "layout=dp4_mp2_pp1", f"mindformers.home={mindformers}"]))
    known, paths = ENGINE.schema(job), Paths(Path("/run"), Path("/data"), Path("/start"))
    assert known is not None and known.defaults["train.monitor_config.monitor_on"] is False
    rendered = {"train": finetune(job, paths, resume=False)}
    assert list(known.problems("mindformers.upstream", rendered, "template.py")) == []
    unknown = {"train": {"parallel_config": {"data_parallels": 2}}}
    assert [problem.remedy for problem in known.problems("x", unknown, "template.py")] == [
        "did you mean train.parallel_config.data_parallel?"
    ]


@pytest.mark.parametrize("family", [family for family in FAMILIES.values() if family.network is not None])
def test_each_network_and_its_experts_are_found(family, checkout):
    """The wheel lacks research/, which has one of them."""
    known = model_file_schema(str(checkout("mindformers-051d65f")), family.network)
    assert known.open == () and "model.model_config.seq_length" in known.defaults
    assert ("moe_config.expert_num" in known.defaults) is (family.experts is not None)
