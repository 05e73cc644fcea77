"""No question and no ground truth is cut, and no row is left out without its reason."""

import json
import shutil
import tempfile
import unicodedata
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base.errors import InputError
from stages.fetch.records import count_rows, read_lines
from stages.fetch.tokenizer_files import write_trained
from stages.grpo.data import true_lengths
from stages.tokenize.counts import warnings
from stages.tokenize.records import check_pair, read_columns
from stages.tokenize.source import Rows
from stages.tokenize.stage import make_encoder, tokenize_path
from stages.tokenize.stream import tokenize_file
from tests.stages.fetch.settings import dataset, tokenize, write_lines
from tests.stages.fetch.test_records import write

LENGTHS = {"max_prompt_length": 24, "seq_length": 12, "sft_length": 400}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    write_trained(["1+2=3\n#### 3"] * 4, 300, path)
    return path


def rows_of(*pairs, keys=("question", "answer")):
    return [dict(zip(keys, pair, strict=True)) for pair in pairs]


def tokenized(directory, path, data=None, **changes):
    encoder = make_encoder(directory, None, data or dataset(), tokenize(**(LENGTHS | changes)))
    return tokenize_path(encoder, path, path.parent / "out")[path.stem]


@pytest.mark.parametrize("over_long", ["drop", "truncate"])
def test_a_ground_truth_is_never_cut(tmp_path, directory, over_long):
    pairs = [("1+2", "#### 3"), ("a", "#### " + "9" * 20), ("b", "#### " + "8" * 31)]
    path = write_lines(tmp_path / "rows.jsonl", *rows_of(*pairs))
    message = r":2: .*'answer' has 20 tokens.*seq_length=12.*2 of 3 rows.*set tokenize\.seq_length=31"
    with pytest.raises(InputError, match=message):
        tokenized(directory, path, over_long=over_long)
    assert not (tmp_path / "out" / "rows.mindrecord").exists()
    card = tokenized(directory, path, over_long=over_long, seq_length=31)
    assert (card["rows_out"], card["truncated"]) == (3, {})


def test_a_text_that_ends_with_the_padding_token_is_not_cut(tmp_path, directory):
    """Readers find the end of a row by its padding."""
    directory = shutil.copytree(directory, tmp_path / "tokenizer")
    pad = make_encoder(directory, None, dataset(), tokenize(**LENGTHS)).tokenizer.token_to_id("9")
    (directory / "generation_config.json").write_text(json.dumps({"pad_token_id": pad}))
    settings = json.loads((directory / "tokenizer_config.json").read_text()) | {"pad_token": None}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    pairs = [("9 and 1?", "#### 98"), ("b", "#### 89"), ("c", "#### 9")]
    path = write_lines(tmp_path / "rows.jsonl", *rows_of(*pairs))
    reason = "the ground truth ends with the padding token '9': set model.pad_token_id to another"
    with pytest.raises(InputError, match=rf"rows\.jsonl:2: {reason}; 2 of 3 rows"):
        tokenized(directory, path)
    card = tokenized(directory, path, dataset(max_bad_share=0.7))
    assert (card["rows_out"], card["dropped"]) == (1, {reason: 2})


def test_a_share_is_compared_without_rounding(tmp_path, directory):
    pairs = [(f"{i}", f"{i}" if i < 29 else f"#### {i}") for i in range(100)]
    path = write_lines(tmp_path / "rows.jsonl", *rows_of(*pairs))
    with pytest.raises(InputError, match=r"dataset\.max_bad_share=0\.29 to leave them out"):
        tokenized(directory, path, dataset(max_bad_share=0.28))
    assert tokenized(directory, path, dataset(max_bad_share=0.29))["rows_out"] == 71


def account(encoder, source, rows, sft=False):
    """Tokenise `source`, which holds `rows` rows, and account for every one.

    Returns:
        Cards, and the entries of the ledger; None if no row is left.
    """
    output = source.parent / "out"
    try:
        cards = tokenize_path(encoder, source, output, sft=sft)
    except InputError as error:
        assert f"{source.name}" in str(error) and "no row is left" in str(error)
        return None
    ledger = output / f"{source.stem}.dropped.jsonl"
    lost = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
    assert cards[source.stem]["rows_in"] == rows
    for stem, card in cards.items():
        entries = [entry for entry in lost if entry["file"] == f"{stem}.mindrecord"]
        assert card["rows_in"] == card["rows_out"] + len(entries)
        assert len(entries) == sum(card["dropped"].values())
        assert len({entry["line"] for entry in entries}) == len(entries)
        assert all(1 <= entry["line"] <= rows and entry["reason"] for entry in entries)
        assert card["records"] == check_pair(output / f"{stem}.mindrecord")
        assert card["rows_out"] <= count_rows([source])
    return cards, lost


TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
TRUTH = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Zs", "Zl", "Zp"]), max_size=30)
KEYS = st.lists(
    st.sampled_from(["question", "answer", "q", "Frage", "问题", "a b"]), min_size=2, max_size=2, unique=True
)


@pytest.mark.parametrize("suffix", ["jsonl", "json", "parquet"])
@given(keys=KEYS, pairs=st.lists(st.tuples(TEXT, TRUTH), min_size=1, max_size=12), marked=st.booleans())
def test_every_ground_truth_is_written_or_its_row_recorded(directory, suffix, keys, pairs, marked):
    rows = rows_of(
        *((question, f"so\n#### {truth}" if marked else truth) for question, truth in pairs), keys=keys
    )
    columns = {"prompt": keys[0], "answer": keys[1]}
    data = dataset(columns=columns, solution="after_marker" if marked else "answer", max_bad_share=1.0)
    with tempfile.TemporaryDirectory() as name:
        source = write(name, f"rows.{suffix}", rows)
        encoder = make_encoder(directory, None, data, tokenize(**LENGTHS))
        result = account(encoder, source, len(rows))
        if result is None:
            return
        dropped = {entry["line"] for entry in result[1]}
        ids = read_columns(source.parent / "out" / "rows.mindrecord", ["prompt_ids", "pretrain_ids"])
    retained = [pair for line, pair in enumerate(pairs, start=1) if line not in dropped]
    decode = encoder.tokenizer.decode_batch
    for column, texts in (
        ("prompt_ids", [question + "\n" for question, _ in retained]),
        ("pretrain_ids", [truth.strip() if marked else truth for _, truth in retained]),
    ):
        lengths = true_lengths(ids[column], encoder.ids.pad)
        stored = [row[:length].tolist() for row, length in zip(ids[column], lengths, strict=True)]
        assert decode(stored) == [unicodedata.normalize("NFC", text) for text in texts]


def test_test_rows_that_repeat_training_are_counted(tmp_path, directory):
    train = write_lines(
        tmp_path / "train.jsonl", *rows_of(("1 + 2", "#### 3"), ("4", "#### 4"), ("x" * 40, "#### 1"))
    )
    repeated = [("1  + 2 ", "#### 3"), ("5", "#### 5"), ("4", "#### 4")]
    test = write_lines(tmp_path / "test.jsonl", *rows_of(*repeated))
    encoder = make_encoder(directory, None, dataset(max_bad_share=0.5), tokenize(**LENGTHS))
    questions: set[int] = set()
    train, test = (Rows([file], partial(read_lines, columns=encoder.columns)) for file in (train, test))
    tokenize_file(encoder, train, tmp_path / "a.mindrecord", questions=questions)
    assert len(questions) == 2
    cards = tokenize_file(encoder, test, tmp_path / "test.mindrecord", training=questions)
    assert cards["test"]["repeated"] == {
        "rows": 2,
        "examples": [{"line": 1, "question": "1  + 2 "}, {"line": 3, "question": "4"}],
    }
    assert len([*warnings(cards)]) == 1


ANY_TEXT = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["#### 1", "a\n#### 22", "<|endoftext|>", "<|im_end|>", "  ", "\n\n"]),
)
ANY = st.none() | st.integers(0, 9) | ANY_TEXT
TURN = st.fixed_dictionaries(
    {}, optional={"from": st.sampled_from(["human", "gpt", "system", "x"]), "value": ANY}
)
ROWS = {
    "grpo": st.fixed_dictionaries({}, optional={"question": ANY, "answer": ANY}),
    "alpaca": st.fixed_dictionaries({}, optional={"instruction": ANY, "input": ANY, "output": ANY}),
    "conversations": st.fixed_dictionaries(
        {}, optional={"conversations": st.none() | st.lists(TURN, max_size=4), "id": ANY}
    ),
}


@pytest.mark.parametrize("kind", ROWS)
@given(data=st.data(), over_long=st.sampled_from(["drop", "truncate"]))
def test_every_json_line_is_written_or_recorded(directory, kind, data, over_long):
    line = st.binary(max_size=20) | ROWS[kind].map(lambda row: json.dumps(row).encode())
    lines = [line.replace(b"\n", b"") for line in data.draw(st.lists(line, min_size=1, max_size=12))]
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "rows.jsonl"
        source.write_bytes(b"".join(line + b"\n" for line in lines))
        lengths = {"max_prompt_length": 6, "seq_length": 3, "sft_length": 40}
        config = tokenize("arith" if kind == "grpo" else kind, over_long=over_long, **lengths)
        encoder = make_encoder(directory, None, dataset(max_bad_share=1.0), config)
        account(encoder, source, len(lines), sft=kind == "grpo")


def test_a_conversation_in_parquet(tmp_path, directory):
    turns = [{"from": "human", "value": "1+2"}, {"from": "gpt", "value": "3"}]
    source = write(tmp_path, "rows.parquet", [{"conversations": turns, "source": "x"}] * 3)
    encoder = make_encoder(directory, None, dataset(), tokenize("conversations", sft_length=200))
    card = tokenize_path(encoder, source, tmp_path)["rows"]
    assert (card["rows_out"], card["duplicates"]) == (3, 2)
    assert card["samples"][0]["learnt"] == "3<|im_end|>"
