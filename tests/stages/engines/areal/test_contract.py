"""Recognition of AReaL's versions."""

import pytest

from pipeline.config.load import load
from stages.base.errors import ConfigError
from stages.engines import get
from stages.engines.areal.contract import version_of_checkout

BASE = ("engine=areal", "model=qwen2_5_7b", "model.path=/models/qwen")


def checkout(root, version, *more):
    for name in ("areal/api/cli_args.py", *more):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")
    (root / "pyproject.toml").write_text(f'[project]\nname = "areal"\nversion = "{version}"\n')
    return str(root)


def test_the_branch_and_the_wheels_commit_are_told_apart(tmp_path):
    assert version_of_checkout(None) == "1.0.4"
    assert version_of_checkout(checkout(tmp_path / "a", "1.0.4")) == "1.0.4"
    branch = checkout(tmp_path / "b", "1.0.4", "areal/utils/awex_runtime.py")
    assert version_of_checkout(branch) == "ascend-v1.0.5"
    run = load([*BASE, f"engine.areal_home={branch}"])
    assert run.engine.contract == "ascend-v1.0.5"
    assert get("areal").schema_script(get("areal").job(run))[1:] == (branch,)


@pytest.mark.parametrize(("version", "rule"), [("2.0.0", "declares 2.0.0"), (None, "it has no")])
def test_another_version_and_another_directory_are_refused(tmp_path, version, rule):
    if version is not None:
        checkout(tmp_path, version)
    with pytest.raises(ConfigError, match=rule):
        version_of_checkout(str(tmp_path))
