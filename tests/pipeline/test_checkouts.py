"""Checkouts are known by their files; doctor shows what each is."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from pipeline import engines
from pipeline.cli import main
from pipeline.plan import checkouts

DATA = Path(__file__).parents[1] / "data"
MINDRLHF, ONE_STAGE = DATA / "mindrlhf_standin", DATA / "mindrlhf_one_stage_standin"
MINDSPEED_RL, MINDFORMERS = DATA / "mindspeed_rl_standin", DATA / "mindformers_standin"
[SUPERVISED] = engines.get(engines.SUPERVISED).checkouts
OLD_MINDFORMERS = engines.get("mindrlhf_one_stage").checkouts[1]
CHECKOUTS = {
    checkout.name: checkout
    for engine in engines.outside()
    for checkout in engine.checkouts
    if checkout not in (SUPERVISED, OLD_MINDFORMERS)
}


def without(home, file, text):
    """Drop a text from a file."""
    complete = (home / file).read_text()
    assert text in complete
    (home / file).write_text(complete.replace(text, ""))


@pytest.mark.parametrize(
    ("name", "home", "contract"),
    [
        ("mindrlhf", MINDRLHF / "e8a8fc1", "e8a8fc1"),
        ("mindrlhf", MINDRLHF / "0cd087455", "0cd087455"),
        ("one_stage", ONE_STAGE / "2d0e84d", "2d0e84d"),
        ("mindspeed_rl", MINDSPEED_RL / "head", "05a90d7"),
        ("mindspeed_rl", MINDSPEED_RL / "window", "667a547"),
    ],
)
def test_checkouts_are_recognised_by_contract(name, home, contract):
    check = checkouts.check(CHECKOUTS[name], str(home))
    assert (check.status, check.found, check.remedy) == ("ok", f"{home}: {contract}", "")


@pytest.mark.parametrize(
    ("name", "message", "remedy"),
    [
        ("mindrlhf", "must be a checkout of mindspore-ai/mindrlhf", "engine.mindrlhf_home: a checkout"),
        ("one_stage", "grpo_one_stage.py", "engine.mindrlhf_home: check out 2d0e84d"),
        ("mindspeed_rl", "no cli/train_grpo.py and no cli/preprocess", "engine.mindspeed_rl_home: clone it"),
        ("mindformers", "run_mindformer.py must be readable", "engine.mindformers_home: clone it"),
    ],
)
def test_an_empty_directory_is_no_checkout(name, message, remedy, tmp_path):
    check = checkouts.check(CHECKOUTS[name], str(tmp_path))
    assert check.status == "problem" and message in check.found and check.remedy.startswith(remedy)


def test_doctor_checks_a_checkout_like_the_stages(tmp_path, capsys):
    home = Path(shutil.copytree(MINDSPEED_RL / "head", tmp_path / "home"))
    launcher = home / "mindspeed_rl/workers/scheduler/launcher_ms.py"
    launcher.write_text(
        "class Group:\n    @staticmethod\n    def _get_free_port():\n        return self.port\n"
    )
    check = checkouts.check(CHECKOUTS["mindspeed_rl"], str(home))
    assert check.status == "problem" and "launcher_ms.py:4 uses `self` in a static method" in check.found
    assert CHECKOUTS["mindspeed_rl"].contract(str(home)) == "05a90d7"  # known all the same
    (home / "configs/model/templates.json").write_text("[{}]")
    assert "must hold prompt templates" in checkouts.check(CHECKOUTS["mindspeed_rl"], str(home)).found
    (tmp_path / "llm").mkdir()
    for llm, status in ((MINDSPEED_RL / "llm", "ok"), (tmp_path / "llm", "problem")):
        assert checkouts.check(CHECKOUTS["mindspeed_llm"], str(llm)).status == status

    for name, checked in (("head", ["mindspeed_rl", "mindspeed_llm"]), ("window", ["mindspeed_rl"])):
        names = [check["name"] for check in doctor_checks(name, tmp_path, capsys)]
        assert [name for name in names if name.startswith("mindspeed")] == checked


def doctor_checks(checkout, store, capsys):
    """Return doctor's checks of a checkout of MindSpeed-RL."""
    recipe = ["engine=mindspeed_rl", "model=qwen2_5_7b", "layout=dp4_mp2_pp2", f"store={store}"]
    recipe += [f"engine.python={sys.executable}", "layout.generate.model_parallel=1"]
    main(["doctor", "--json", f"engine.mindspeed_rl_home={MINDSPEED_RL / checkout}", *recipe])
    return json.loads(capsys.readouterr().out)["checks"]["mindspeed_rl"]


@pytest.mark.parametrize(
    ("have", "status"),
    [
        ("1.3.0", "problem"),
        ("1.5.0", "problem"),
        ("1.6.0", "ok"),
        ("1.6.1", "ok"),
        ("1.7.0", "problem"),
        ("2.1.0", "problem"),
        ("of my own", "problem"),
    ],
)
def test_installed_mindformers(have, status):
    check = checkouts.check(CHECKOUTS["mindformers"], None, have)
    assert check.status == status
    assert check.remedy.startswith("must be mindformers>=1.6.0,<1.7; ") == (status != "ok")
    assert checkouts.check(CHECKOUTS["mindformers"], None, None).status == "problem"


@pytest.mark.parametrize(
    ("version", "status", "one_stage"),
    [("1.6.0", "ok", "ok"), ("1.4.0.beta1", "problem", "ok"), ("1.3.0", "problem", "problem")],
)
def test_a_checkout_of_mindformers(version, status, one_stage, tmp_path):
    home = Path(shutil.copytree(MINDFORMERS, tmp_path / "home"))
    assert checkouts.check(CHECKOUTS["mindformers"], str(home)).status == "ok"
    (home / "setup.py").write_text(f"setup(\n    name='mindformers',\n    version='{version}',\n)\n")
    checks = [checkouts.check(item, str(home)) for item in (CHECKOUTS["mindformers"], SUPERVISED)]
    assert {check.status for check in checks} == {status} and version in checks[0].found
    assert checkouts.check(OLD_MINDFORMERS, str(home)).status == one_stage


def test_mindformers_of_other_arguments_is_refused(tmp_path):
    home = Path(shutil.copytree(MINDFORMERS, tmp_path / "home"))
    (home / "mindformers").mkdir()
    (home / "mindformers" / "__init__.py").touch()  # what an installed package has, too
    file = home / "run_mindformer.py"
    file.write_text(file.read_text().replace("--output_dir", "--out"))
    check = checkouts.check(CHECKOUTS["mindformers"], str(home))
    assert check.status == "problem" and "lacks --output_dir" in check.found


@pytest.mark.parametrize(("checkout", "version"), [("head", "0.8.1"), ("window", "0.1.2")])
def test_required_packages_depend_on_the_checkout(checkout, version, tmp_path, capsys):
    checks = doctor_checks(checkout, tmp_path, capsys)
    (remedy,) = (check["remedy"] for check in checks if check["name"] == "tensordict")
    assert f"must be tensordict=={version}" in remedy
