"""Which of mindrlhf's tokenizers reads completions; tests/upstream/mindrlhf/test_functions.py runs them."""

import json

import pytest

from stages.engines.mindrlhf.vocabulary import has_endoftext, leftover, tokenizer_of
from tests.stages.engines.mindrlhf.jobs import job_of

SEVEN = ("model=qwen2_5_7b", "layout=dp1_mp4_pp2")


def with_tokens(directory, **ids):
    added = {str(index): {"content": f"<|{name}|>"} for name, index in ids.items()}
    (directory / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    return str(directory)


@pytest.mark.parametrize(
    ("model", "tokenizer"),
    [
        ({"source": "modelscope"}, "qwen"),
        ({"source": "builtin"}, "file"),
        ({"source": "local", "path": "/nowhere"}, "qwen"),
        ({"source": "local", "eos_token_id": (151645, 151643)}, "qwen"),
        ({"source": "local", "eos_token_id": [3]}, "file"),
        ({"source": "local", "pad_token_id": 0}, "file"),
        ({"source": "local", "eos_token_id": "what was typed, not checked yet"}, "file"),
        ({"source": "modelscope", "family": "deepseek_v3"}, "file"),
    ],
)
def test_the_tokenizer_follows_from_the_configuration(model, tokenizer):
    assert tokenizer_of({"family": "qwen2"} | model) == tokenizer


def test_the_tokenizer_follows_from_a_local_directory(tmp_path):
    path = with_tokens(tmp_path, endoftext=151643, im_end=151645)
    model = {"family": "qwen2", "source": "local", "path": path}
    assert tokenizer_of(model) == "qwen" and has_endoftext(model)
    with_tokens(tmp_path, endoftext=0, im_end=2)
    assert tokenizer_of(model) == "file" and has_endoftext(model)
    with_tokens(tmp_path, begin_of_text=128000)
    assert tokenizer_of(model) == "file" and not has_endoftext(model)
    (tmp_path / "tokenizer_config.json").write_text("no JSON")
    assert tokenizer_of(model) == "qwen"  # fetch says what is wrong with the file


@pytest.mark.parametrize(
    ("overrides", "remains"),
    [
        (["model.variant=instruct"], True),
        (["model.variant=base"], False),  # ends with the padding token, which is cut off
        (["model.variant=instruct", "engine.tokenizer=file"], False),
        (["model.variant=instruct", "engine.contract=0cd087455"], True),
        (["model.variant=base", "model.eos_token_id=[151645]"], True),
    ],
)
def test_text_that_remains_of_a_stop_token(overrides, remains):
    job = job_of(*SEVEN, *overrides)
    result = leftover(job.model, job.engine.tokenizer)
    assert (result is not None) is remains
    assert result is None or result.text == "\u24a0"
