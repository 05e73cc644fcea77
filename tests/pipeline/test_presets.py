"""train.preset: a bundle below what a user gives, and above engines and experiments."""

import json
import subprocess
import sys

import pytest
import yaml

from pipeline.cli import main
from pipeline.config import file
from pipeline.config.compose import BUILT_IN, compose
from pipeline.config.load import load, unchecked
from pipeline.errors import ConfigError
from stages.base.keys import flat
from tests.pipeline.plans import problem_of

FILES = {path.stem: yaml.safe_load(path.read_text()) for path in (BUILT_IN / "train/preset").glob("*.yaml")}
EXPERIMENTS = sorted(path.stem for path in (BUILT_IN / "experiment").glob("*.yaml"))
PAIRS = sorted({("verl_7b", name) for name in FILES} | {(name, "gspo") for name in EXPERIMENTS})


def test_all_presets_decide_the_same_keys():
    assert set(FILES) == {"grpo", "dapo", "dr_grpo", "gspo", "cispo", "rloo"}
    assert len({tuple(values) for values in FILES.values()}) == 1
    assert all(values["preset"] == name for name, values in FILES.items())


@pytest.mark.parametrize("name", FILES)
def test_a_preset_sets_its_values_and_a_given_key_beats_it(name):
    before, after = compose([])["train"], compose([f"train.preset={name}"])["train"]
    assert after == before | FILES[name]
    for words in ([f"train.preset={name}", "train.beta=0.7"], ["train.beta=0.7", f"train.preset={name}"]):
        assert compose(words)["train"] == after | {"beta": 0.7}
    config = load([f"train.preset={name}"])
    assert config.train.scale_advantages == (config.train.advantages == "grpo")


@pytest.mark.parametrize(("experiment", "name"), PAIRS)
def test_a_preset_and_an_experiment_do_not_fight(experiment, name):
    plain = flat(compose([f"experiment={experiment}"]))
    both = flat(compose([f"train.preset={name}", f"experiment={experiment}"]))
    preset = {f"train.{key}": value for key, value in FILES[name].items()}
    assert both == plain | preset
    overridden = flat(compose([f"experiment={experiment}", f"train.preset={name}", "train.epsilon_high=0.9"]))
    assert overridden == both | {"train.epsilon_high": 0.9}


@pytest.fixture
def mine(tmp_path):
    """A directory with an experiment that chooses a preset and changes it, and a preset."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "train/preset").mkdir(parents=True)
    (tmp_path / "train/preset/careful.yaml").write_text(
        "# @package train\n# Small steps.\npreset: careful\nepsilon_high: 0.05\n"
    )
    (tmp_path / "experiment/mine.yaml").write_text(
        "# @package _global_\ndefaults:\n  - override /train/preset: dapo\n"
        "train:\n  beta: 0.002\n  steps: 7\nrollout:\n  max_tokens: 64\n"
    )
    return tmp_path


def test_an_experiment_changes_the_preset_that_it_chooses(mine):
    train = compose(["experiment=mine"], mine)["train"]
    assert {key: train[key] for key in FILES["dapo"]} == FILES["dapo"] | {"beta": 0.002}
    assert train["steps"] == 7
    for words in (["experiment=mine", "train.preset=rloo"], ["train/preset=rloo", "experiment=mine"]):
        train = compose(words, mine)["train"]
        assert {key: train[key] for key in FILES["rloo"]} == FILES["rloo"] and train["steps"] == 7
    train = compose(["experiment=mine", "train=grpo", "train.preset=rloo"], mine)["train"]
    assert train["loss_type"] == "dr_grpo" and train["steps"] == compose([])["train"]["steps"]
    assert compose(["experiment=mine", "train.preset=careful"], mine)["train"]["epsilon_high"] == 0.05
    assert compose(["experiment=mine", "train.preset=null"], mine)["train"]["preset"] is None


def test_a_preset_beats_the_values_of_an_engine():
    for engine in ("verl", "mindrlhf"):
        train = compose([f"engine={engine}", "train.preset=cispo"])["train"]
        assert {key: train[key] for key in FILES["cispo"]} == FILES["cispo"]
    assert compose(["engine=verl", "train.preset=cispo"])["train"]["preset"] == "cispo"


def test_the_last_of_several_presets_counts_and_others_are_suggested():
    assert compose(["train.preset=dapo", "train.preset=gspo"])["train"]["preset"] == "gspo"
    found = problem_of(["train.preset=dappo"])
    assert (found.path, found.value) == ("train.preset", "dappo") and "train.preset=dapo" in found.remedy


def test_a_saved_configuration_keeps_its_preset_and_takes_another(tmp_path):
    words = ["train.preset=dapo", "train.epsilon_high=0.2", "train.steps=9"]  # 0.2 is the default's, too
    saved = tmp_path / "my.yaml"
    saved.write_text(file.text(words, load(words).plain()))
    assert load(file.read(saved, [], None)) == load(words)
    typed = ["train.preset=rloo"]
    assert load([*file.read(saved, typed, None), *typed]) == load(
        ["train.steps=9", "train.epsilon_high=0.2", *typed]
    )


def test_presets_with_equal_values_are_one_run():
    from pipeline.plan.graph import plan

    given = [f"train.{key}={json.dumps(value)}" for key, value in FILES["gspo"].items() if key != "preset"]
    one, two = (plan(load(words), lambda path: "x").specs for words in (["train.preset=gspo"], given))
    assert [spec.key.fingerprint for spec in one] == [spec.key.fingerprint for spec in two]


def test_explain_shows_what_presets_set(capsys, mine):
    main(["config", "--explain", "train.preset", "--json", "--config-dir", str(mine)])
    choices = json.loads(capsys.readouterr().out)["choices"]
    assert set(choices) == {*FILES, "careful"}
    assert "epsilon_high=0.28" in choices["dapo"] and "arXiv:2503.14476" in choices["dapo"]
    assert choices["careful"] == "Small steps. epsilon_high=0.05"


def test_hydras_own_page_shows_the_values():
    command = [sys.executable, "-m", "pipeline", "--cfg", "job", "train.preset=gspo"]
    shown = yaml.safe_load(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert {key: shown["train"][key] for key in FILES["gspo"]} == FILES["gspo"]


def test_contradicting_scales_are_refused():
    assert unchecked(["train.advantages=rloo"]).train.scale_advantages is False
    with pytest.raises(ConfigError, match=r"scale_advantages.*must not be true"):
        load(["train.preset=rloo", "train.scale_advantages=true"])
