"""Text to blocks, by hand; mindformers' own records are compared in tests/upstream/mindformers."""

import json

import pytest

from pipeline.config.load import load
from stages.base.errors import ConfigError, InputError
from stages.fetch.tokenizer_files import write_trained
from stages.tokenize.blocks import cleaned, paragraphs
from stages.tokenize.records import read_columns
from stages.tokenize.stage import make_encoder, tokenize_path
from tests.stages.fetch.settings import dataset, tokenize

pyarrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "tokenizer").mkdir()
    write_trained(["abc"], 259, tmp_path / "tokenizer")  # 256 bytes and three special tokens
    return tmp_path / "tokenizer"


def blocks(directory, source, kind, length, **changes):
    """Return the texts of the blocks that are written; the tokenizer has one id for each byte."""
    encoder = make_encoder(directory, None, dataset(), tokenize(kind, sft_length=length - 1, **changes))
    out = source.parent / f"out-{len(list(source.parent.iterdir()))}"
    tokenize_path(encoder, source, out)
    rows = [
        row
        for file in sorted(out.glob("*.mindrecord"))
        for row in read_columns(file, ["input_ids"])["input_ids"].tolist()
    ]
    return [encoder.tokenizer.decode(row) for row in rows]


def test_wikitext_is_turned_into_text():
    assert cleaned('a @-@ b , 1 @,@ 000 " x " ( y ) \n z ; it \'s') == 'a-b, 1,000 "x" (y)\nz; it\'s'
    text = "\n\n= Title =\n\nOne .\n\n= = Part = =\n\nTwo\n\n\n\n"
    assert list(paragraphs(text)) == ["One .", "Two"]


def test_paragraphs_follow_each_other_and_the_rest_is_left_out(directory, tmp_path):
    source = tmp_path / "wiki.tokens"
    source.write_text("abc\n\n= head =\n\ndefgh", encoding="utf-8")
    assert blocks(directory, source, "wiki", 3) == ["abc", "def"]
    assert blocks(directory, source, "wiki", 3, repeat=2) == ["abc", "def", "gha", "bcd", "efg"]
    assert blocks(directory, source, "wiki", 3, repeat=2, shards=2) == ["abc", "def", "gha", "bcd", "efg"]
    with pytest.raises(InputError, match="too few tokens"):
        blocks(directory, source, "wiki", 9)


def write(directory, *texts):
    directory.mkdir(exist_ok=True)
    for number, lines in enumerate(texts):
        table = pyarrow.table({"text": list(lines), "n": [0] * len(lines)})
        parquet.write_table(table, directory / f"{number}.parquet")
    return directory


def test_lines_of_parquet_files(directory, tmp_path):
    source = write(tmp_path / "in", (" ab \n\ncdefg ", "h"), ("xyz1",))
    assert blocks(directory, source, "wikipedia", 3, compat="none") == ["abc", "def", "xyz"]
    again = blocks(directory, source, "wikipedia", 3, compat="none", samples_num=5)
    assert again == ["abc", "def", "xyz", "abc", "def"]
    assert blocks(directory, source, "wikipedia", 3, compat="none", samples_num=1) == ["abc"]


def test_mindformers_loses_a_block_that_ends_with_its_line(directory, tmp_path):
    source = write(tmp_path / "in", ("abc", "defg"))
    assert blocks(directory, source, "wikipedia", 3, compat="none") == ["abc", "def"]
    assert blocks(directory, source, "wikipedia", 3) == ["def"]


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("repeat", ["tokenize=wikipedia", "tokenize.repeat=2"]),
        ("samples_num", ["tokenize=wiki", "tokenize.samples_num=2"]),
        ("shards", ["tokenize=alpaca", "tokenize.shards=2"]),
        ("compat", ["dataset=gsm8k", "tokenize.compat=mindformers"]),
    ],
)
def test_keys_without_effect_are_refused(key, overrides):
    with pytest.raises(ConfigError) as refused:
        load(overrides)
    assert f"tokenize.{key}" in [problem.path for problem in refused.value.problems]


def test_the_converters_question(directory, tmp_path):
    source = tmp_path / "alpaca.json"
    row = {"instruction": "Add.", "input": "1 2", "output": "3"}
    source.write_text(json.dumps([row]), encoding="utf-8")
    (text,) = blocks(directory, source, "alpaca", 200, compat="mindformers")
    assert "Add: 1 2" in text
    (text,) = blocks(directory, source, "alpaca", 200)
    assert "Add.\n1 2" in text
