"""Checkouts and arguments, and which tokenizer reads completions (tests/upstream/mindrlhf runs them)."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from stages.base.errors import ConfigError
from stages.engines.mindrlhf import contract
from stages.engines.mindrlhf.files import arguments, grpo_config
from stages.engines.mindrlhf.vocabulary import has_padding_token, special_tokens, tokenizer_of
from stages.models.families import FAMILIES
from tests.stages.engines.mindrlhf.jobs import DATA, job_of, paths

HOME = DATA / "mindrlhf_standin"
SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")
DEEPSEEK = FAMILIES["deepseek_v3"].mindrlhf
assert DEEPSEEK is not None


@pytest.mark.parametrize("contract", ["0cd087455", "e8a8fc1"])
def test_arguments_are_those_of_the_version(contract):
    job = job_of(*SEVEN, f"engine.contract={contract}")
    main = (HOME / contract / "examples/grpo/qwen_grpo_tutorial/main.py").read_text()
    for argument in arguments(job, paths(job), resume=True):
        assert f'"{argument.partition("=")[0]}"' in main


def test_a_row_holds_all_samples_of_a_pack_and_has_the_shortest_length_at_least():
    assert job_of(*SEVEN).seq_length == job_of(*SEVEN, "engine.pack_num=1").max_model_len == 2048
    four = job_of(*SEVEN, "engine.pack_num=4")
    assert four.sample_length == 1025 and four.seq_length == 4224  # 4 x 1025, up to 33 x 128


def test_keys_that_a_checkout_does_not_know_are_named(tmp_path):
    home = Path(shutil.copytree(HOME / "0cd087455", tmp_path / "home"))
    file = home / contract.CONFIGS
    job = job_of(*SEVEN, "engine.contract=0cd087455")
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


def with_tokens(directory, **ids):
    added = {str(index): {"content": f"<|{name}|>"} for name, index in ids.items()}
    (directory / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    return str(directory)


@pytest.mark.parametrize(
    ("model", "tokenizer"),
    [
        ({}, "qwen"),
        ({"source": "builtin"}, "file"),
        ({"path": "/nowhere"}, "qwen"),
        ({"eos_token_id": (151645, 151643)}, "qwen"),
        ({"eos_token_id": (3,)}, "file"),
        ({"pad_token_id": 0}, "file"),
        ({"family": "deepseek_v3"}, "file"),
    ],
)
def test_the_tokenizer_follows_from_the_configuration(model, tokenizer):
    assert tokenizer_of(dataclasses.replace(job_of(*SEVEN).model, **model)) == tokenizer


def test_the_tokenizer_follows_from_a_local_directory(tmp_path):
    path = with_tokens(tmp_path, endoftext=151643, im_end=151645)
    model = dataclasses.replace(job_of(*SEVEN).model, path=path)
    assert tokenizer_of(model) == "qwen" and has_padding_token(model)
    with_tokens(tmp_path, endoftext=0, im_end=2)
    assert tokenizer_of(model) == "file" and has_padding_token(model)
    with_tokens(tmp_path, begin_of_text=128000)
    assert tokenizer_of(model) == "file" and not has_padding_token(model)
    (tmp_path / "tokenizer_config.json").write_text("no JSON")
    assert tokenizer_of(model) == "qwen"  # fetch says what is wrong with the file


@pytest.mark.parametrize(
    ("tokens", "end"),
    [
        ({}, "<｜end▁of▁sentence｜>"),  # no file says otherwise
        ({"｜end▁of▁sentence｜": 1}, "<｜end▁of▁sentence｜>"),
        ({"｜endoftext｜": 0}, None),
        ({"|endoftext|": 0}, "<|endoftext|>"),
    ],
)
def test_deepseeks_special_tokens_are_those_that_the_vocabulary_has(tmp_path, tokens, end):
    """mindrlhf's tokenizer would add others, of which the weights have no rows."""
    if tokens:
        added = {str(index): {"content": f"<{name}>"} for name, index in tokens.items()}
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    model = dataclasses.replace(job_of(*SEVEN).model, family="deepseek_v3", path=str(tmp_path))
    assert has_padding_token(model) == (end is not None)
    assert end is None or special_tokens(model)["eos"] == end
    built_in = dataclasses.replace(model, source="builtin", path=None)
    assert set(special_tokens(built_in).values()) == {"<|endoftext|>"}
