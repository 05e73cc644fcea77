import pytest

from stages.tokenize.config import check_tokenize
from tests.stages.fetch.settings import ROOT, tokenize

DATASETS = sorted(path.stem for path in (ROOT / "conf" / "dataset").glob("*.yaml"))
SETTINGS = sorted(path.stem for path in (ROOT / "conf" / "tokenize").glob("*.yaml"))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_shipped_settings_are_sound(name):
    assert check_tokenize(tokenize(name)) == []


@pytest.mark.parametrize("dataset", DATASETS)
def test_every_dataset_brings_lengths_and_a_reward(dataset):
    assert dataset in SETTINGS  # conf/config.yaml chooses tokenize and reward by the dataset's name
    assert (ROOT / "conf" / "reward" / f"{dataset}.yaml").is_file()
    assert tokenize(dataset).kind == "grpo"


@pytest.mark.parametrize(("key", "value"), [("chat_template", True), ("id_dtype", "int32"), ("kind", "text")])
def test_what_rlhf_data_cannot_do_is_refused_in_compat_mode(key, value):
    (problem,) = check_tokenize(tokenize(compat="mindrlhf", **{key: value}))
    assert problem.path == f"tokenize.{key}"
    assert check_tokenize(tokenize(**{key: value})) == []


@pytest.mark.parametrize("kind", ["alpaca", "conversations"])
def test_turns_need_a_template(kind):
    (problem,) = check_tokenize(tokenize(kind, chat_template=False))
    assert problem.path == "tokenize.chat_template"


@pytest.mark.parametrize("name", ["arith", "gsm8k"])
def test_compat_fits_the_datasets_it_is_for(name):
    assert check_tokenize(tokenize(name, compat="mindrlhf")) == []
