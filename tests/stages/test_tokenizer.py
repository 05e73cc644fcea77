"""Tokenizers: training, their files, and the ids of transformers."""

import json

import pytest
from tokenizers import Tokenizer

from stages.base.errors import InputError
from stages.fetch import tokenizer_files
from stages.tokenizer import SpecialIds, build, keep_tags, load, special_ids, special_token
from tests.stages.fetch.settings import GSM8K, QWEN, model, needs_shared

TEXTS = ["Tom has 3 and 12 apples.\n", "3+12=15\n#### 15"] * 5
SAMPLE = "Tom has 7 apples. It's naïve — 数 \u0301\n\n  #### 42<|im_end|>"


@pytest.fixture
def trained(tmp_path):
    directory = tmp_path / "trained"
    directory.mkdir()
    tokenizer_files.write_trained(TEXTS, 400, directory)
    return directory


def test_digits_and_the_marker_are_single_tokens(trained):
    tokenizer = load(trained)
    assert tokenizer.encode("3+12=15\n#### 15").tokens == [*"3+12=15", "Ċ", "####", "Ġ", *"15"]
    assert tokenizer.encode("Tom has").tokens == ["Tom", "Ġhas"]
    reference = build(trained, drop_hash_merges=True)
    assert reference.encode("####").tokens == ["#"] * 4
    assert reference.encode("Tom has 3").ids == tokenizer.encode("Tom has 3").ids


@pytest.mark.parametrize("removed", [["tokenizer.json"], ["vocab.json", "merges.txt"]])
def test_missing_files_are_made_from_the_others(trained, tmp_path, removed):
    expected = {name: (trained / name).read_bytes() for name in ("vocab.json", "merges.txt")}
    ids = Tokenizer.from_file(str(trained / "tokenizer.json")).encode(SAMPLE).ids
    for name in removed:
        (trained / name).unlink()
    tokenizer_files.take(trained, tmp_path)
    assert load(tmp_path).encode(SAMPLE).ids == ids
    assert {name: (tmp_path / name).read_bytes() for name in expected} == expected


def test_settings_are_written_for_qwens_tokenizers_only(trained):
    """transformers would split another model's text as Qwen2's, and add <|im_end|> to its vocabulary."""
    (trained / "tokenizer_config.json").unlink()
    tokenizer_files.complete(trained)
    assert json.loads((trained / "tokenizer_config.json").read_text())["eos_token"] == "<|im_end|>"
    (trained / "tokenizer_config.json").unlink()
    text = (trained / "tokenizer.json").read_text()
    (trained / "tokenizer.json").write_text(text.replace("<|im_end|>", "<|eot_id|>"))
    with pytest.raises(InputError, match=r"tokenizer_config\.json: .* without <\|im_end\|>"):
        tokenizer_files.complete(trained)


def test_ids_come_from_the_config_then_the_files_then_the_names(trained):
    by_name = load(trained).token_to_id
    end, text = by_name("<|im_end|>"), by_name("<|endoftext|>")
    assert special_ids(trained, model()) == SpecialIds(None, (end,), text)
    (trained / "config.json").write_text(json.dumps({"eos_token_id": 1, "bos_token_id": 2}))
    assert special_ids(trained, None) == SpecialIds(2, (1,), text)
    (trained / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 4]}))
    assert special_ids(trained, model()).eos == (3, 4)
    explicit = model(eos_token_id=[0], pad_token_id=0, bos_token_id=0)
    assert special_ids(trained, explicit) == SpecialIds(0, (0,), 0)


def test_a_directory_that_names_no_end_is_an_error(trained):
    content = json.loads((trained / "tokenizer.json").read_text())
    (trained / "tokenizer.json").write_text(json.dumps(content | {"added_tokens": []}))
    (trained / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=r"model\.eos_token_id"):
        special_ids(trained, model())


def test_files_of_different_tokenizers_are_refused(trained):
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = {"9999": {"content": "<x>", "special": True, **flags}}
    (trained / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
    with pytest.raises(InputError, match="<x> gets id"):
        build(trained)
    (trained / "merges.txt").write_text("Tom has\n", encoding="utf-8")
    with pytest.raises(InputError, match="do not fit"):
        build(trained)


@pytest.mark.parity
def test_ids_of_a_trained_tokenizer_equal_those_of_transformers(trained):
    reference = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(trained)
    actual = load(trained)
    for text in (*TEXTS, SAMPLE, "a\n\n b  c\t1234 #####", "", " ", "ﬁ ①"):
        assert reference(text)["input_ids"] == actual.encode(text).ids, text
    assert (reference.pad_token, reference.eos_token) == ("<|endoftext|>", "<|im_end|>")


@needs_shared
@pytest.mark.parity
def test_gsm8k_ids_equal_those_of_transformers():
    reference = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(QWEN)
    rows = [json.loads(line) for line in (GSM8K / "test.jsonl").read_text().splitlines()[:300]]
    texts = [row[key] for row in rows for key in ("question", "answer")]
    assert [entry.ids for entry in build(QWEN).encode_batch(texts)] == reference(texts)["input_ids"]
    assert special_ids(QWEN, None) == SpecialIds(151643, (151643,), 151643)


@needs_shared
@pytest.mark.parity
@pytest.mark.parametrize("generation", [True, False])
def test_the_default_template_renders_the_same_as_qwens_template(trained, generation):
    reference = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(trained)
    template = json.loads((QWEN / "tokenizer_config.json").read_text())["chat_template"]
    user = {"role": "user", "content": "U"}
    answered = [{"role": "system", "content": "S"}, user, {"role": "assistant", "content": "A"}]
    for turns in ([user], answered):
        arguments = {"tokenize": False, "add_generation_prompt": generation}
        expected = reference.apply_chat_template(turns, chat_template=template, **arguments)
        assert reference.apply_chat_template(turns, **arguments) == expected


TAGGED = "<think>\n12 + 30\n</think>\n<answer> 42 </answer>"


@pytest.mark.parametrize("special", [True, False])
def test_decoding_keeps_tags_and_no_other_special_token(trained, special):
    tokenizer = load(trained)
    tokens = [
        "<think>",
        "</think>",
        "<answer>",
        "</answer>",
        "<tool_call>",
        "</tool_call>",
        "<s>",
        "</s>",
        "<mask>",
    ]
    for token in tokens:
        tokenizer.add_special_tokens([special_token(token)]) if special else tokenizer.add_tokens([token])
    ids = tokenizer.encode(f"<s>{TAGGED}<tool_call>x</tool_call><mask></s><|im_end|>").ids
    assert ("<think>" in tokenizer.decode(ids)) is not special
    kept = keep_tags(tokenizer)
    frames = ("", "") if special else ("<s>", "<mask></s>")
    assert kept.decode(ids) == f"{frames[0]}{TAGGED}<tool_call>x</tool_call>{frames[1]}"
    assert kept.encode(TAGGED).ids == tokenizer.encode(TAGGED).ids
