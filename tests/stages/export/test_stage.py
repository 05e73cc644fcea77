"""Token ids, sampling options and the model card of an exported model."""

import dataclasses
import json
import re
import shutil

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from pipeline.config.load import load
from stages.export.card import fenced, model_card, plain
from stages.export.stage import generation, make_usable
from stages.fetch import stage as fetch
from stages.fetch.config import licence_files
from stages.grpo.config import greedy
from stages.tokenizer import SpecialIds, special_ids
from tests.stages.fetch.settings import arith_values, context, model_values

IDS = SpecialIds(None, (7, 8), 9)
HOSTILE = "a|b `` ``` <script>alert(1)</script> [x](javascript:y)\n# Title\u202e ![p](http://h/p.png)"


def write(file, values):
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(values))


@pytest.fixture
def config():
    return load(["engine=local"]).plain()


def artifacts(tmp_path, answer="7"):
    made = {"versions": {"mindspore": "2.7.0"}, "git_commit": "abc", "config": {"engine": {"name": "local"}}}
    write(tmp_path / "grpo/manifest.json", made)
    write(tmp_path / "evaluate/manifest.json", {})
    result = {"accuracy_sft": 0.5, "accuracy_grpo": 0.93, "prompts": 1024}
    write(tmp_path / "evaluate/result.json", result)
    write(tmp_path / "evaluate/samples.jsonl", {"prompt": "3+4?", "after": answer})
    return {name: tmp_path / name for name in ("grpo", "evaluate", "fetch")}


def test_generation_config_has_training_ids_and_evaluates_sampling(tmp_path):
    base = {
        "eos_token_id": 1, "temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05,
        "kept": 1,
    }  # fmt: skip
    write(tmp_path / "generation_config.json", base)
    ids = {"bos_token_id": None, "eos_token_id": [7, 8], "pad_token_id": 9, "kept": 1}
    result = generation(tmp_path, IDS, greedy(28), sampled=True)
    drawn = {"do_sample": True, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "max_new_tokens": 28}
    assert result == ids | drawn
    rollout = dataclasses.replace(
        greedy(28), temperature=0.6, top_k=5, top_p=0.9, min_p=0.1, repetition_penalty=1.2, min_tokens=3
    )
    always = {"max_new_tokens": 28, "repetition_penalty": 1.2, "min_new_tokens": 3}
    drawn = {"do_sample": True, "temperature": 0.6, "top_k": 5, "top_p": 0.9, "min_p": 0.1}
    assert generation(tmp_path, IDS, rollout, sampled=True) == ids | always | drawn
    assert generation(tmp_path, IDS, rollout, sampled=False) == ids | always | {"do_sample": False}


@pytest.mark.parametrize(("typed", "written"), [("[5]", 5), ("[5,6]", [5, 6])])
def test_both_files_end_with_the_ids_of_training(tmp_path, typed, written):
    """Programs such as vLLM's offline mode and mindformers read config.json alone."""
    fetched = context(tmp_path, "fetch", {"model": model_values(), "dataset": arith_values(), "seed": 0})
    fetch.run(fetched)
    out = shutil.copytree(fetched.output, tmp_path / "out")
    assert json.loads((out / "config.json").read_text())["eos_token_id"] not in (5, [5, 6])
    config = load(["engine=local", f"model.eos_token_id={typed}", "model.pad_token_id=7"]).plain()
    make_usable(config, {"fetch": fetched.output}, out)
    for name, end in (("config.json", written), ("generation_config.json", [5, 6][: typed.count(",") + 1])):
        values = json.loads((out / name).read_text())
        assert (values["eos_token_id"], values["pad_token_id"]) == (end, 7)
    assert special_ids(out, None).eos == (5, 6)[: typed.count(",") + 1]


def test_the_card_has_the_accuracy_but_no_secret(tmp_path, config):
    config["command"] = ["train.beta=0.02", "dataset.url=https://u:secret@host/x"]
    card = model_card(config, artifacts(tmp_path), (), untemplated=True)
    assert "| 93.0 % | 91.3 to 94.4 % (95 % interval) |" in card and "grpoflow run train.beta=0.02 " in card
    assert "secret" not in card


def test_the_card_has_the_licence_of_the_base(tmp_path, config):
    (tmp_path / "LICENSE.txt").write_text("Apache")
    (tmp_path / "README.md").write_text("---\nlicense: apache-2.0\nother: 1\n---\n# Base")
    model = dataclasses.replace(load(["engine=local"]).model, source="local", path=str(tmp_path))
    files = licence_files(model)
    assert [file.name for file in files] == ["LICENSE.txt", "README.md"]
    card = model_card(config, {}, files, untemplated=True)
    front = yaml.safe_load(card.split("---")[1])
    assert front["license"] == "apache-2.0" and "[LICENSE.txt](LICENSE.txt)" in card
    (tmp_path / "README.md").write_text("---\n{ [\n---\n# Base")
    assert "license" not in yaml.safe_load(model_card(config, {}, files, untemplated=True).split("---")[1])
    assert licence_files(load(["engine=local"]).model) == ()


def test_texts_of_users_and_models_stay_text(tmp_path, config):
    config["model"]["name"] = config["dataset"]["name"] = HOSTILE
    config["tokenize"]["system_prompt"] = HOSTILE
    config["command"] = [f"model.name={HOSTILE}"]
    card = model_card(config, artifacts(tmp_path, HOSTILE), (), untemplated=True)
    outside, fence = [], None
    for line in card.splitlines():
        ticks = len(line) - len(line.lstrip("`"))
        if ticks >= 3 and fence is None:
            fence = ticks
        elif fence is not None and line == "`" * fence:
            fence = None
        elif fence is None:
            outside.append(line)
    assert fence is None and "\u202e" not in card
    assert not any(re.search(r"(?<!\\)[<\[`]", line) for line in outside if "`do_sample" not in line)
    assert [line for line in outside if line.startswith("# ")] == [
        f"# {plain(HOSTILE)} after GRPO on {plain(HOSTILE)}"
    ]


@given(text=st.text(alphabet="`~ab\n ", max_size=30))
def test_no_text_ends_its_code_block(text):
    opening, *inside, closing = fenced(text).split("\n")
    assert opening == closing and not any(line.strip().startswith(closing) for line in inside)
