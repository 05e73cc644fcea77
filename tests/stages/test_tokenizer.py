import json

import pytest

from stages.base.errors import InputError
from stages.fetch.tokenizer_files import write_trained
from stages.tokenizer import SpecialIds, build, load, special_ids
from tests.stages.fetch.settings import GSM8K, QWEN, model, needs_shared

TEXTS = ["#### 15", "Tom has 3 apples"] * 4


@pytest.fixture
def directory(tmp_path):
    write_trained(TEXTS, 300, tmp_path)
    return tmp_path


def test_leaving_out_hash_merges_splits_the_marker_only(directory):
    actual, reference = build(directory), build(directory, drop_hash_merges=True)
    assert actual.encode("####").tokens == ["####"]
    assert reference.encode("####").tokens == ["#"] * 4
    assert reference.encode("Tom has 3").ids == actual.encode("Tom has 3").ids


def test_ids_come_from_the_config_then_the_files_then_the_names(directory):
    by_name = load(directory).token_to_id
    end, text = by_name("<|im_end|>"), by_name("<|endoftext|>")
    assert special_ids(directory, model()) == SpecialIds(None, (end,), text)
    (directory / "config.json").write_text(json.dumps({"eos_token_id": 1, "bos_token_id": 2}))
    assert special_ids(directory, None) == SpecialIds(2, (1,), text)
    (directory / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 4]}))
    assert special_ids(directory, model()).eos == (3, 4)
    explicit = model(eos_token_id=[0], pad_token_id=0, bos_token_id=0)
    assert special_ids(directory, explicit) == SpecialIds(0, (0,), 0)


def test_a_directory_that_names_no_end_is_an_error(directory):
    content = json.loads((directory / "tokenizer.json").read_text())
    content["added_tokens"] = []
    (directory / "tokenizer.json").write_text(json.dumps(content))
    (directory / "tokenizer_config.json").unlink()
    with pytest.raises(InputError, match=r"model\.eos_token_id"):
        special_ids(directory, model())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("vocab.json", "[]", "do not fit"),
        ("vocab.json", "{", "do not fit"),
        ("merges.txt", "Tom has\n", "do not fit"),
        ("tokenizer_config.json", '{"added_tokens_decoder": {"7": {}}}', "malformed"),
        (
            "tokenizer_config.json",
            '{"added_tokens_decoder": {"9999": {"content": "<x>", "special": true, "single_word": false,'
            ' "lstrip": false, "rstrip": false, "normalized": false}}}',
            "<x> gets id",
        ),
    ],
)
def test_malformed_files_are_named(directory, name, content, message):
    (directory / name).write_text(content, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        build(directory)


@needs_shared
def test_files_of_qwen_give_qwens_ids():
    tokenizer = build(QWEN)
    assert tokenizer.get_vocab_size() == 151665
    assert tokenizer.encode("<|endoftext|><|im_start|><|im_end|>").ids == [151643, 151644, 151645]
    assert special_ids(QWEN, None) == SpecialIds(151643, (151643,), 151643)
    assert tokenizer.encode("#### 72").tokens == ["####", "Ġ", "7", "2"]
    assert build(QWEN, drop_hash_merges=True).encode("####").tokens == ["#"] * 4


@needs_shared
@pytest.mark.parity
def test_gsm8k_ids_equal_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoTokenizer.from_pretrained(QWEN)
    actual = build(QWEN)
    rows = [json.loads(line) for line in (GSM8K / "test.jsonl").read_text().splitlines()[:300]]
    texts = [row[key] for row in rows for key in ("question", "answer")]
    assert [entry.ids for entry in actual.encode_batch(texts)] == reference(texts)["input_ids"]
