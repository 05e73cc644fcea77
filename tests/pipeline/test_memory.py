from pipeline.config.load import load
from stages.engines import local
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
