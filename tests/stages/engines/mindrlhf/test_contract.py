import shutil
from pathlib import Path

import pytest

from stages.base.errors import ConfigError
from stages.engines.mindrlhf import contract
from stages.engines.mindrlhf.files import grpo_config
from stages.models.families import FAMILIES
from tests.stages.engines.mindrlhf.jobs import DATA, job_of, paths

HOME = DATA / "mindrlhf_standin"
DEEPSEEK = FAMILIES["deepseek_v3"].mindrlhf
assert DEEPSEEK is not None


def test_keys_that_a_checkout_does_not_know_are_named(tmp_path):
    home = Path(shutil.copytree(HOME / "0cd087455", tmp_path / "home"))
    file = home / contract.CONFIGS
    job = job_of("model=qwen2_5_7b", "layout=dp1_mp4_pp2", "engine.contract=0cd087455")
    rendered = grpo_config(job, paths(job), resume=False)
    assert contract.unknown_keys(str(home), rendered) == []
    for field in ("num_rollouts:", "min_p:"):
        assert field in file.read_text()
        file.write_text(file.read_text().replace(field, "newer:"))
    unknown = ["rl_config.num_rollouts", "generate_config.sampling_config.min_p"]
    assert contract.unknown_keys(str(home), rendered) == unknown
    assert contract.recognise(str(home)) == "0cd087455"


def test_deepseeks_version_is_recognised_by_its_entry_point(tmp_path):
    assert contract.recognise(str(HOME / "e8a8fc1"), DEEPSEEK) == "e8a8fc1"
    older = Path(shutil.copytree(HOME / "0cd087455", tmp_path / "older"))
    with pytest.raises(ConfigError, match=r"must be a checkout .* examples/grpo/deepseekv3_grpo"):
        contract.recognise(str(older), DEEPSEEK)
    (older / DEEPSEEK.main).parent.mkdir()
    (older / DEEPSEEK.main).write_text('parser.add_argument("--sft_path_infer", type=str)')
    with pytest.raises(
        ConfigError, match=r"for e8a8fc1 it lacks --actor_checkpoint_path.*check out e8a8fc1$"
    ):
        contract.recognise(str(older), DEEPSEEK)
