"""No question and no ground truth is cut, and no row is left out without its reason."""

import json
import shutil
import tempfile
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base.errors import InputError
from stages.fetch.tokenizer_files import write_trained
from stages.grpo.data import true_lengths
from stages.tokenize.counts import table, warnings
from stages.tokenize.records import read_columns
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
    with pytest.raises(InputError) as failure:
        tokenized(directory, path, over_long=over_long)
    output = str(failure.value)
    for part in (f"{path}:2", "'answer'", "20 tokens", "tokenize.seq_length=12", "2 of 3 rows"):
        assert part in output
    assert "set tokenize.seq_length=31" in output
    assert not (tmp_path / "out" / "rows.mindrecord").exists()
    card = tokenized(directory, path, over_long=over_long, seq_length=31)
    assert (card["rows_out"], card["truncated"]) == (3, {})


@pytest.mark.parametrize("over_long", ["drop", "truncate"])
def test_a_question_is_never_cut(tmp_path, directory, over_long):
    path = write_lines(tmp_path / "rows.jsonl", *rows_of(("x" * 40, "#### 3"), ("a", "#### 4")))
    with pytest.raises(InputError, match=r"rows\.jsonl:1: .*'question' has 41 tokens.*max_prompt_length=24"):
        tokenized(directory, path, over_long=over_long)
    card = tokenized(directory, path, dataset(max_bad_share=0.5), over_long=over_long)
    assert (card["rows_in"], card["rows_out"], card["truncated"]) == (2, 1, {})
    assert card["dropped"] == {"prompt_ids is longer than tokenize.max_prompt_length": 1}


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


@pytest.mark.parametrize("solution", ["after_marker", "answer"])
def test_the_reason_for_a_missing_ground_truth(tmp_path, directory, solution):
    path = write_lines(tmp_path / "rows.jsonl", *rows_of(("a", "#### 1"), ("b", " ")))
    card = tokenized(directory, path, dataset(solution=solution, max_bad_share=0.5))
    reasons = {
        "after_marker": "the answer has no '#### ' before a ground truth", "answer": "the answer is blank",
    }  # fmt: skip
    assert card["dropped"] == {reasons[solution]: 1}


def test_a_share_is_compared_without_rounding(tmp_path, directory):
    pairs = [(f"{i}", f"{i}" if i < 29 else f"#### {i}") for i in range(100)]
    path = write_lines(tmp_path / "rows.jsonl", *rows_of(*pairs))
    with pytest.raises(InputError, match=r"dataset\.max_bad_share=0\.29 to leave them out"):
        tokenized(directory, path, dataset(max_bad_share=0.28))
    assert tokenized(directory, path, dataset(max_bad_share=0.29))["rows_out"] == 71


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
        path = write(name, f"rows.{suffix}", rows)
        encoder = make_encoder(directory, None, data, tokenize(**LENGTHS))
        try:
            card = tokenize_path(encoder, path, path.parent / "out")["rows"]
        except InputError as error:
            assert "no row is left" in str(error)
            return
        ledger = path.parent / "out" / "rows.dropped.jsonl"
        dropped = {json.loads(line)["line"] for line in ledger.open()} if ledger.exists() else set()
        ids = read_columns(path.parent / "out" / "rows.mindrecord", ["prompt_ids", "pretrain_ids"])
    retained = [pair for line, pair in enumerate(pairs, start=1) if line not in dropped]
    assert len(dropped) == sum(card["dropped"].values())
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
    tokenize_file(encoder, [train], tmp_path / "a.mindrecord", questions=questions)
    assert len(questions) == 2
    cards = tokenize_file(encoder, [test], tmp_path / "test.mindrecord", training=questions)
    assert cards["test"]["repeated"] == {
        "rows": 2,
        "examples": [{"line": 1, "question": "1  + 2 "}, {"line": 3, "question": "4"}],
    }
    assert list(table({"files": cards})) == [("test", "3", "3", "0", "0", "2")]
    (warning,) = warnings(cards)
    assert "2 of 3 questions occur in training" in warning and "row 1" in warning
