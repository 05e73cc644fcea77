import json
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pipeline.cli import main
from pipeline.plan import checkouts
from stages.engines.declaration import Checkout


def test_the_default_engine_is_ready(tmp_path, capsys):
    assert main(["doctor", "--json", f"store={tmp_path / 'store'}"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdicts"] == {"local": "ready"}
    assert [check["name"] for check in printed["checks"]["machine"]] == ["disk", "port"]  # no network unasked
    assert not (tmp_path / "store").exists()


def test_missing_parts_of_mindrlhf_are_listed_with_remedies(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    engine = ["engine=mindrlhf", "model=qwen2_5_7b", "layout=dp1_mp4_pp2", f"engine.python={sys.executable}"]
    assert main(["doctor", "--json", *engine, f"store={tmp_path}"]) == 1
    printed = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in printed["checks"]["mindrlhf"]}
    assert printed["verdicts"]["mindrlhf"] == "not ready"
    assert checks["devices"]["remedy"].startswith("8 cards are needed")
    assert "engine.mindrlhf_home" in checks["mindrlhf"]["remedy"]
    assert checks["python"]["status"] == checks["mindspore"]["status"] == "ok"
    wrong = f"engine.mindformers_home={tmp_path}"
    assert main(["doctor", "--json", *engine, wrong, "engine.use_vllm=0", f"store={tmp_path}"]) == 1
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]["mindrlhf"]}
    assert "vllm" not in checks and checks["mindformers"]["remedy"].startswith("engine.mindformers_home: ")


def test_constraints_are_the_versions_that_are_checked(tmp_path, capsys):
    def printed(*words):
        code = main(["doctor", "engine=verl", f"engine.python={sys.executable}", f"store={tmp_path}", *words])
        return code, capsys.readouterr().out

    code, text = printed("engine.device=cpu", "--constraints")
    lines = [Requirement(line.partition("#")[0]) for line in text.splitlines() if line[0] != "#"]
    assert code == 0 and {"verl", "torch", "ray"} <= {line.name for line in lines}
    assert not [line.name for line in lines if line.name.startswith(("torch_", "torch-", "vllm"))]
    _, report = printed("engine.device=cpu", "--json")
    checks = {check["name"] for check in json.loads(report)["checks"]["verl"]}
    assert checks == {"python", *(line.name for line in lines)}  # a CPU has no CANN, driver or cards
    assert "torch_npu==" in printed("--constraints")[1]
    assert main(["doctor", "--constraints"]) == 2


def test_ssh_hosts_are_checked(tmp_path, capsys):
    """All that are named, although this configuration needs only one."""
    over = ["launcher=ssh", "launcher.hosts=[a.invalid,b.invalid]", f"store={tmp_path}"]
    assert main(["doctor", "--json", *over]) == 1
    names = [check["name"] for check in json.loads(capsys.readouterr().out)["checks"]["machine"]]
    assert names == ["disk", "port", "host a.invalid", "host b.invalid"]


def test_programs_of_slurm_and_of_a_container_are_checked(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    inside = ["engine=verl", "engine.device=cpu", "engine.container=[docker,exec,x]", "launcher=slurm"]
    assert main(["doctor", "--json", *inside, f"store={tmp_path}"]) == 1
    groups = json.loads(capsys.readouterr().out)["checks"]
    checks = {check["name"]: check["status"] for group in ("machine", "verl") for check in groups[group]}
    assert checks["sbatch"] == checks["docker"] == "problem"


def test_mindformers_is_checked_if_it_trains_sft(tmp_path, capsys):
    home = Path(__file__).parents[1] / "data" / "mindformers_standin"
    overrides = [f"mindformers.home={home}", f"mindformers.python={sys.executable}", f"store={tmp_path}"]
    assert main(["doctor", "--json", "engine.sft=mindformers", *overrides]) == 1  # no cards
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdicts"]["mindformers"] == "not ready"
    checks = {check["name"]: check["status"] for check in printed["checks"]["mindformers"]}
    assert checks["mindformers"] == checks["mindspore"] == "ok"


@pytest.mark.parametrize(
    ("version", "status", "shown"),
    [("1.6.0", "ok", "1.6.0"), ("1.5.0", "problem", "1.5.0"), (None, "problem", "not installed")],
)
def test_an_installed_package_can_replace_a_checkout(version, status, shown):
    checkout = Checkout("mindformers", "engine.home", str, "description", "mindformers", ">=1.6.0,<1.7")
    check = checkouts.check(checkout, None, version)
    assert (check.status, check.found) == (status, shown)
    assert bool(check.remedy) == (status == "problem")
