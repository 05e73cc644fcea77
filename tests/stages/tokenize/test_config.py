import pytest

from stages.tokenize.config import RULES, SftDataConfig, unused_texts
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


@pytest.mark.parametrize("name", SETTINGS)
def test_no_shipped_text_is_unused(name):
    assert list(unused_texts(tokenize(name), SftDataConfig(None, "alpaca"))) == []


@pytest.mark.parametrize(
    ("changes", "examples", "unused"),
    [
        ({"system_prompt": "Be brief."}, None, ["system_prompt"]),
        ({"system_prompt": "Be brief."}, "rows.jsonl", []),
        ({"system_prompt": "Be brief.", "chat_template": True}, None, []),
        ({"system_prompt": ""}, None, []),
        ({"prompt_suffix": " Box it.", "compat": "mindrlhf"}, None, ["prompt_suffix"]),
        ({"prompt_suffix": " Box it."}, None, []),
    ],
)
def test_texts_that_no_prompt_contains_are_reported(changes, examples, unused):
    problems = unused_texts(tokenize("gsm8k", **changes), SftDataConfig(examples, "alpaca"))
    assert [problem.path for problem in problems] == [f"tokenize.{key}" for key in unused]
