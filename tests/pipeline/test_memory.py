import json

from pipeline.cli import main
from pipeline.config.load import load
from stages.grpo import engine as local
from stages.models.memory import GIB


def test_the_roles_of_engine_local_share_the_machines_memory():
    config = load([])
    roles = local.memory(config)
    assert [role.role for role in roles] == ["train", "generate", "reference"]
    assert [role.role for role in local.memory(load(["train.beta=0"]))] == ["train", "generate"]
    assert local.shortage(config, roles, 64 * GIB) == []
    [warning] = local.shortage(config, roles, GIB // 8)
    assert warning.startswith("memory: 2 processes with ") and "do not fit" in warning
    assert "may not fit" in local.shortage(config, roles, 2 * sum(role.low for role in roles))[0]


def test_plan_estimates_memory(tmp_path, capsys):
    overrides = ["engine=mindrlhf", "model=qwen2_5_7b", "layout=dp1_mp4_pp2", f"store={tmp_path}"]
    small = "engine.device_memory_gib=13"
    assert main(["plan", "--json", *overrides, small]) == 10
    plan = json.loads(capsys.readouterr().out)
    assert [role["role"] for role in plan["memory"]] == ["train", "generate", "reference", "reshard"]
    assert all(term["formula"] for role in plan["memory"] for term in role["terms"])
    assert any(warning.startswith("memory: train does not fit") for warning in plan["warnings"])
    assert main(["plan", *overrides]) == 10
    text = capsys.readouterr().out
    assert "memory per card, train: " in text and "does not fit" not in text
