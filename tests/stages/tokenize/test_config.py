import pytest

from stages.tokenize.config import RULES
from tests.stages.fetch.settings import ROOT, tokenize

DATASETS = sorted(path.stem for path in (ROOT / "conf" / "dataset").glob("*.yaml"))
SETTINGS = sorted(path.stem for path in (ROOT / "conf" / "tokenize").glob("*.yaml"))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_shipped_settings_are_sound(name):
    assert RULES.check(tokenize(name)) == []


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_dataset_brings_lengths_and_a_reward(dataset):
    assert dataset in SETTINGS  # conf/config.yaml chooses tokenize and reward by the dataset's name
    assert (ROOT / "conf" / "reward" / f"{dataset}.yaml").is_file()
    assert tokenize(dataset).kind == "grpo"
