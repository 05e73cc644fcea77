import shutil
from pathlib import Path

import pytest

from stages.base.errors import ConfigError
from stages.engines.mindrlhf import contract
from stages.models.families import FAMILIES
from tests.stages.engines.mindrlhf.jobs import DATA

HOME = DATA / "mindrlhf_standin"
DEEPSEEK = FAMILIES["deepseek_v3"].mindrlhf
assert DEEPSEEK is not None


def test_a_checkout_that_lacks_a_key_is_refused_by_name(tmp_path):
    home = Path(shutil.copytree(HOME / "e8a8fc1", tmp_path / "home"))
    file = home / contract.CONFIGS
    file.write_text(file.read_text().replace("num_rollouts: Any; ", ""))
    with pytest.raises(ConfigError, match=r"for e8a8fc1 it lacks rl_config\.num_rollouts"):
        contract.recognise(str(home))


def test_deepseeks_own_entry_point_is_asked(tmp_path):
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


def test_keys_that_a_later_version_adds_do_no_harm(tmp_path):
    home = Path(shutil.copytree(HOME / "e8a8fc1", tmp_path / "home"))
    file = home / contract.CONFIGS
    file.write_text(file.read_text().replace("num_rollouts: Any", "num_rollouts: Any; newer: Any"))
    assert contract.recognise(str(home)) == "e8a8fc1"
