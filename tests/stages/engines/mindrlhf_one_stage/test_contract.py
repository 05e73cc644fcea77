"""A checkout is known by what its files declare."""

import shutil

import pytest

from stages.base.errors import ConfigError
from stages.engines.mindrlhf_one_stage import contract
from stages.engines.mindrlhf_one_stage.config import WINDOWS
from stages.engines.mindrlhf_one_stage.stage import arguments, rendered
from tests.stages.engines.mindrlhf_one_stage.jobs import HOME, PATHS, SEVEN, job_of

OLDER = "train.prompts_per_step=2"  # one batch of both replicas


@pytest.mark.parametrize("version", WINDOWS)
def test_every_version_is_recognised_and_gets_its_own_arguments(version):
    more = [] if version == "2d0e84d" else [OLDER]
    job = job_of(*SEVEN, f"engine.mindrlhf_home={HOME / version}", *more)
    assert job.window == version
    script = contract.entry(HOME / version, job.window)
    given = arguments(job, PATHS)[::2]
    declared = script.read_text()
    assert all(f'"{name}"' in declared for name in given)
    assert ("--only_save_strategy" in given) is (version == "32599d0")
    assert ("--pre_store_data" in given) is (version != "32599d0")
    assert rendered(job, PATHS).start.program[1] == str(script)


def test_a_newer_checkout_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"from 32599d0 .* to before f251809"):
        contract.recognise(str(HOME.parent / "mindrlhf_standin" / "e8a8fc1"))
    with pytest.raises(ConfigError, match="must be readable"):
        contract.recognise(str(tmp_path))


def test_missing_arguments_of_a_script_are_named(tmp_path):
    shutil.copytree(HOME / "2d0e84d", tmp_path / "home")
    script = contract.entry(tmp_path / "home", "2d0e84d")
    script.write_text(script.read_text().replace("--sft_path_infer", "--sft_path"))
    with pytest.raises(ConfigError, match="lacks --sft_path_infer of 2d0e84d"):
        contract.recognise(str(tmp_path / "home"))
