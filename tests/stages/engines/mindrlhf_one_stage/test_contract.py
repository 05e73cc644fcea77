"""A checkout is known by what its files declare."""

import shutil

import pytest

from stages.base.errors import ConfigError
from stages.engines.mindrlhf_one_stage import variant
from stages.engines.mindrlhf_one_stage.stage import rendered
from tests.stages.engines.mindrlhf_one_stage.jobs import HOME, PATHS, SEVEN, job_of


def test_the_checkout_is_recognised_and_gets_its_arguments():
    job = job_of(*SEVEN, f"engine.mindrlhf_home={HOME}")
    assert job.engine.contract == "2d0e84d"
    script = HOME / variant.ENTRY
    declared = script.read_text()
    assert all(f'"{name}"' in declared for name in rendered(job, PATHS).start.program[3::2])
    assert rendered(job, PATHS).start.program[1] == str(script)


@pytest.mark.parametrize(
    ("file", "removed", "missing"),
    [
        (variant.ENTRY, "--sft_path_infer", "--sft_path_infer"),
        (variant.ENTRY, "--pre_store_data", "--pre_store_data"),  # from 875f92b on
        (variant.TRAINER, "num_rollouts", "num_rollouts of make_experience"),  # from 2d0e84d on
    ],
)
def test_older_versions_are_refused(tmp_path, file, removed, missing):
    home = shutil.copytree(HOME, tmp_path / "home")
    (home / file).write_text((home / file).read_text().replace(removed, "--other"))
    with pytest.raises(ConfigError) as refused:
        variant.recognise(str(home))
    (problem,) = refused.value.problems
    assert missing in problem.rule and "2d0e84d" in problem.remedy


def test_a_newer_checkout_is_refused(tmp_path):
    for home in (HOME.parents[1] / "mindrlhf_standin" / "e8a8fc1", tmp_path):
        with pytest.raises(ConfigError, match="must be readable"):
            variant.recognise(str(home))
