import shutil
from pathlib import Path

import pytest

from stages.base.errors import ConfigError
from stages.engines.mindspeed_rl import contract
from tests.stages.engines.mindspeed_rl.jobs import HOME, WINDOWS, job_of


def copy_of(version, target):
    return Path(shutil.copytree(WINDOWS[version], target / "home"))


def test_a_pin_without_the_back_end_is_refused_with_the_reason(tmp_path):
    home = copy_of("667a547", tmp_path)
    file = home / "mindspeed_rl/config_cls/megatron_config.py"
    file.write_text(file.read_text().replace("ai_framework = ", ""))
    (home / "configs/datasets/deepscaler.yaml").unlink()
    with pytest.raises(ConfigError) as error:
        contract.of(str(home))
    told = str(error.value)
    assert "no MindSpore back end: it lacks MegatronConfig.ai_framework and configs/datasets" in told
    assert "559db0856, which some guides pin, has neither" in told and "check out 05a90d7" in told


def test_a_checkout_between_the_windows_is_refused_by_what_it_lacks(tmp_path):
    home = copy_of("05a90d7", tmp_path)
    file = home / "mindspeed_rl/config_cls/rl_config.py"
    file.write_text(file.read_text().replace("init_kl_coef = ", ""))
    with pytest.raises(ConfigError, match=r"no known window: without cli/convert.*rl_config\.init_kl_coef"):
        contract.of(str(home))


def test_a_file_that_is_no_python_is_named(tmp_path):
    home = copy_of("05a90d7", tmp_path)
    (home / "mindspeed_rl/config_cls/rl_config.py").write_text("class RLConfig(:\n")
    with pytest.raises(ConfigError, match=r"rl_config\.py must be readable"):
        contract.of(str(home))


def test_keys_that_a_later_commit_adds_do_no_harm(tmp_path):
    home = copy_of("05a90d7", tmp_path)
    file = home / "mindspeed_rl/config_cls/rl_config.py"
    file.write_text(file.read_text().replace("gamma", "newer = gamma", 1))
    assert contract.of(str(home)) == "05a90d7"


def test_a_verifier_of_the_users_own_is_known(tmp_path):
    home = copy_of("667a547", tmp_path)
    given = [f"engine.mindspeed_rl_home={home}", "engine.verifier_function=[mine]"]
    recipe = ["model=qwen2_5_7b", "layout=dp4_mp2_pp2"]
    with pytest.raises(ConfigError, match=r"engine\.verifier_function\[0\]=mine: must be one of"):
        job_of(*recipe, *given)
    file = home / contract.VERIFIERS_FILE
    text = file.read_text()
    assert '"base_acc"' in text
    file.write_text(text.replace('"base_acc"', '"mine": None, "base_acc"', 1))
    assert job_of(*recipe, *given).engine.verifier_function == ("mine",)


def test_what_a_window_registers_is_what_its_checkout_says():
    for version, home in WINDOWS.items():
        known = contract.verifiers(None, version)  # type: ignore[arg-type]
        assert contract.verifiers(str(home), version) == known  # type: ignore[arg-type]


def test_a_launcher_that_ends_in_name_error_is_found(tmp_path):
    home = copy_of("05a90d7", tmp_path)
    assert contract.broken_port(str(home)) is None
    file = home / "mindspeed_rl/workers/scheduler/launcher_ms.py"
    file.write_text("class A:\n    @staticmethod\n    def port():\n        return self.ip()\n")
    assert contract.broken_port(str(home)) == "mindspeed_rl/workers/scheduler/launcher_ms.py:4"
    file.write_text("class A:\n    @staticmethod\n    def port(self):\n        return self.ip()\n")
    assert contract.broken_port(str(home)) is None


def test_a_converter_that_is_gone_is_told_before_anything_runs(tmp_path):
    def missing(*overrides):
        return [str(problem) for problem in contract.converter(job_of(*overrides).engine)]

    seven = ("model=qwen2_5_7b", "layout=dp4_mp2_pp2")
    assert "is required to run: contract 05a90d7 has no converter" in missing(*seven)[0]
    assert (
        "removed from Ascend/MindSpeed-LLM on 2026-08-03"
        in missing(*seven, f"engine.mindspeed_llm_home={tmp_path}")[0]
    )
    assert missing(*seven, f"engine.mindspeed_llm_home={HOME / 'llm'}") == []
    assert missing(*seven, "engine.contract=667a547", "train.checkpoint_every=100") == []
