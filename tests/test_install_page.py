"""docs/install.md names the versions and commits that the product asks for; its commands are bash."""

import re
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

from stages.engines.mindrlhf import engine as mindrlhf
from stages.engines.mindrlhf.config import VERSIONS as MINDRLHF
from stages.engines.mindrlhf_one_stage.config import CONTRACT as ONE_STAGE
from stages.engines.mindspeed_rl import engine as mindspeed_rl
from stages.engines.mindspeed_rl.config import VERSIONS as MINDSPEED_RL
from stages.engines.mindspeed_rl.train_yaml import runtime_env
from tests.stages.engines.mindspeed_rl.jobs import SEVEN, job_of

PINNED = ("mindspore", "ray", "antlr4-python3-runtime")
PAGE = (Path(__file__).parents[1] / "docs" / "install.md").read_text(encoding="utf-8")
PARTS = dict(re.findall(r"## engine=(\w+)\n(.*?)(?=\n## |\Z)", PAGE, re.DOTALL))


def rows(engine):
    lines = [line for line in PARTS[engine].splitlines() if line.startswith("|") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def columns():
    names, *values = zip(*rows("mindspeed_rl"), strict=True)
    return {column[0]: dict(zip(names, column, strict=True)) for column in values}


def test_every_contract_of_every_engine_is_there():
    assert [row[0] for row in rows("mindrlhf")[1:]] == list(MINDRLHF)
    assert [row[0] for row in rows("mindrlhf_one_stage")[1:]] == [ONE_STAGE]
    assert list(columns()) == list(MINDSPEED_RL)
    assert all(
        row[2].startswith(row[0]) for name in ("mindrlhf", "mindrlhf_one_stage") for row in rows(name)[1:]
    )


@pytest.mark.parametrize("contract", MINDSPEED_RL)
def test_mindspeed_rl_gets_the_versions_that_doctor_checks(contract):
    pins = columns()[contract]
    requested = {name: expected for name, expected, _ in mindspeed_rl.ENGINE.known[contract].packages}
    assert [name for name in PINNED if pins[name] not in SpecifierSet(requested[name])] == []
    variables = runtime_env(job_of(*SEVEN, f"engine.contract={contract}"))["env_vars"]
    assert pins["VLLM_VERSION"] == variables["VLLM_VERSION"]


def test_mindrlhf_gets_the_versions_that_doctor_checks():
    for name, expected, _ in mindrlhf.KNOWN.packages:
        assert f"{name}{expected}" in PARTS["mindrlhf"]
    assert "vllm-0.8.4.dev0" in PARTS["mindrlhf"] and "vllm_mindspore-0.3.0" in PARTS["mindrlhf"]
