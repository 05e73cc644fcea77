import json

import pytest
from tokenizers import Tokenizer

from stages.base.errors import InputError
from stages.fetch import tokenizer_files
from stages.tokenizer import load
from tests.stages.fetch.settings import QWEN, needs_shared

TEXTS = ["Tom has 3 and 12 apples.\n", "3+12=15\n#### 15"] * 5
SAMPLE = "Tom has 7 apples. It's naïve — 数 \u0301\n\n  #### 42<|im_end|>"


@pytest.fixture
def trained(tmp_path):
    tokenizer_files.write_trained(TEXTS, 400, tmp_path)
    return tmp_path


def test_digits_and_the_marker_are_single_tokens(trained):
    tokenizer = load(trained)
    assert tokenizer.encode("3+12=15\n#### 15").tokens == [*"3+12=15", "Ċ", "####", "Ġ", *"15"]
    assert tokenizer.encode("Tom has").tokens == ["Tom", "Ġhas"]


def test_tokenizer_json_is_built_from_vocabulary_and_merges(trained, tmp_path):
    (trained / "tokenizer.json").rename(tmp_path / "kept.json")
    target = tmp_path / "target"
    target.mkdir()
    tokenizer_files.take(trained, target)
    retained = Tokenizer.from_file(str(tmp_path / "kept.json"))
    assert load(target).encode(SAMPLE).ids == retained.encode(SAMPLE).ids


def test_vocabulary_and_merges_are_extracted_from_tokenizer_json(trained, tmp_path):
    target = tmp_path / "target"
    target.mkdir()
    expected = {name: (trained / name).read_bytes() for name in ("vocab.json", "merges.txt")}
    for name in expected:
        (trained / name).unlink()
    tokenizer_files.take(trained, target)
    assert {name: (target / name).read_bytes() for name in expected} == expected


def test_a_vocabulary_that_does_not_fit_is_refused(trained):
    size = load(trained).get_vocab_size()
    tokenizer_files.check_fit(trained, size)
    with pytest.raises(InputError, match=rf"model\.vocab_size={size - 1}: .*{size} ids"):
        tokenizer_files.check_fit(trained, size - 1)


def test_missing_or_malformed_files_are_named(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    with pytest.raises(InputError, match=r"vocab\.json"):
        tokenizer_files.take(source, target)
    (source / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=r"tokenizer\.json: is not a tokenizer"):
        tokenizer_files.take(source, target)
    with pytest.raises(InputError, match=r"model\.tokenizer_path"):
        tokenizer_files.take(tmp_path / "none", target)


def test_settings_are_written_for_qwens_tokenizers_only(trained, tmp_path):
    """transformers would split another model's text as Qwen2's, and add <|im_end|> to its vocabulary."""
    (trained / "tokenizer_config.json").unlink()
    tokenizer_files.complete(trained)
    assert json.loads((trained / "tokenizer_config.json").read_text())["eos_token"] == "<|im_end|>"
    (trained / "tokenizer_config.json").unlink()
    text = (trained / "tokenizer.json").read_text()
    (trained / "tokenizer.json").write_text(text.replace("<|im_end|>", "<|eot_id|>"))
    expected = r"tokenizer_config\.json: is missing, and cannot be derived .* without <\|im_end\|>; copy it"
    with pytest.raises(InputError, match=expected):
        tokenizer_files.complete(trained)


@pytest.mark.parity
def test_ids_and_chat_template_equal_those_of_transformers(trained):
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(trained)
    actual = load(trained)
    for text in (*TEXTS, SAMPLE, "a\n\n b  c\t1234 #####", "", " ", "ﬁ ①"):
        assert reference(text)["input_ids"] == actual.encode(text).ids, text
    assert (reference.pad_token, reference.eos_token) == ("<|endoftext|>", "<|im_end|>")
    turns = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    rendered = reference.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert rendered == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"
    )
    rendered = reference.apply_chat_template(turns[1:], tokenize=False)
    assert rendered == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nU<|im_end|>\n"
    )


@needs_shared
@pytest.mark.parity
def test_the_default_template_renders_the_same_as_qwens_template(trained):
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(trained)
    template = json.loads((QWEN / "tokenizer_config.json").read_text())["chat_template"]
    for turns in (
        [{"role": "user", "content": "U"}],
        [
            {"role": "system", "content": "S"},
            {"role": "user", "content": "U"},
            {"role": "assistant", "content": "A"},
        ],
    ):
        for prompt in (True, False):
            arguments = {"tokenize": False, "add_generation_prompt": prompt}
            expected = reference.apply_chat_template(turns, chat_template=template, **arguments)
            assert reference.apply_chat_template(turns, **arguments) == expected
