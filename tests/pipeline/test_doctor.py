import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from pipeline.cli import main
from pipeline.plan import checkouts
from stages.engines.engine import Checkout

MINDSPORE_OF_ENGINES = "ok" if Version(version("mindspore")) < Version("2.10") else "problem"
"""What mindrlhf and mindformers say of this interpreter's: with Python 3.12 it is 2.10."""


@pytest.fixture
def checks(tmp_path, printed):
    """Run doctor; return the checks of an engine, or of the machine, by name."""

    def run(group, *overrides, code=1):
        shown = printed("doctor", *overrides, f"store={tmp_path / 'store'}", code=code)
        verdict = "not ready" if code else "ready"
        assert shown["verdicts"].get(group, verdict) == verdict  # a machine has none
        return {check["name"]: check for check in shown["checks"][group]}

    return run


def test_the_default_engine_is_ready(checks, tmp_path):
    assert [*checks("machine", code=0)] == ["disk", "port"]  # no network unasked
    assert checks("local", code=0) and not (tmp_path / "store").exists()


def test_missing_parts_of_mindrlhf_are_listed_with_remedies(checks, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = ["engine=mindrlhf", "model=qwen2_5_7b", "layout=dp1_mp4_pp2", f"engine.python={sys.executable}"]
    shown = checks("mindrlhf", *engine)
    assert shown["devices"]["remedy"].startswith("8 cards are needed")
    assert "engine.mindrlhf_home" in shown["mindrlhf"]["remedy"]
    assert shown["python"]["status"] == "ok"
    assert shown["mindspore"]["status"] == MINDSPORE_OF_ENGINES
    shown = checks("mindrlhf", *engine, f"engine.mindformers_home={tmp_path}", "engine.use_vllm=0")
    assert "vllm" not in shown and shown["mindformers"]["remedy"].startswith("engine.mindformers_home: ")


def test_constraints_are_the_versions_that_are_checked(checks, shown):
    verl = ["engine=verl", f"engine.python={sys.executable}"]
    lines = shown("doctor", *verl, "engine.device=cpu", "--constraints").out.splitlines()
    required = {Requirement(line.partition("#")[0]).name for line in lines if line[0] != "#"}
    assert {"verl", "torch", "ray"} <= required
    assert not [name for name in required if name.startswith(("torch_", "torch-", "vllm"))]
    assert {*checks("verl", *verl, "engine.device=cpu")} == {
        "install",
        "python",
        *required,
    }  # no CANN, driver or cards
    assert "torch_npu==" in shown("doctor", *verl, "--constraints").out
    assert main(["doctor", "--constraints"]) == 2


def test_ssh_hosts_are_checked(checks):
    """All that are named, although this configuration needs only one."""
    shown = checks("machine", "launcher=ssh", "launcher.hosts=[a.invalid,b.invalid]")
    assert [*shown] == ["disk", "port", "host a.invalid", "host b.invalid"]


def test_programs_of_slurm_and_of_a_container_are_checked(checks, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    inside = ["engine=verl", "engine.device=cpu", "engine.container=[docker,exec,x]", "launcher=slurm"]
    for group, program in (("machine", "sbatch"), ("verl", "docker")):
        assert checks(group, *inside)[program]["status"] == "problem"


def test_mindformers_is_checked_if_it_trains_sft(checks):
    home = Path(__file__).parents[1] / "data" / "mindformers_standin"
    sft = ["engine.sft=mindformers", f"mindformers.home={home}", f"mindformers.python={sys.executable}"]
    shown = checks("mindformers", *sft)  # there are no cards
    assert shown["mindformers"]["status"] == "ok"
    assert shown["mindspore"]["status"] == MINDSPORE_OF_ENGINES


@pytest.mark.parametrize(
    ("version", "status", "shown"),
    [("1.6.0", "ok", "1.6.0"), ("1.5.0", "problem", "1.5.0"), (None, "problem", "not installed")],
)
def test_an_installed_package_can_replace_a_checkout(version, status, shown):
    checkout = Checkout("mindformers", "engine.home", str, "description", "mindformers", ">=1.6.0,<1.7")
    check = checkouts.check(checkout, None, version)
    assert (check.status, check.found) == (status, shown)
    assert bool(check.remedy) == (status == "problem")


def test_cards_that_generate_alone_are_counted_and_nvidias_are_found_by_their_files(checks):
    verl = ["engine=verl", f"engine.python={sys.executable}", "model=qwen2_5_7b", "model.path=/models/m"]
    separate = ["layout=dp2_mp1_pp1", "engine.mode=fully_async", "engine.rollout_cards=3"]
    assert checks("verl", *verl, *separate)["devices"]["remedy"].startswith("5 cards are needed; see npu-smi")
    shown = checks("verl", *verl, *separate, "engine.device=cuda")
    assert shown["devices"]["remedy"].startswith("5 cards are needed; see nvidia-smi")
    assert "cann" not in shown and "torch_npu" not in shown and "vllm" in shown
