import json

import pytest

from stages.fetch.tokenizer_files import write_trained
from stages.tokenize.encode import NO_TRUTH
from stages.tokenize.records import read_columns
from stages.tokenize.stage import make_encoder
from stages.tokenize.stream import tokenize_file
from tests.stages.fetch.settings import dataset, tokenize, write_lines


def row(question, answer):
    return {"question": question, "answer": answer}


LINES = [
    row("1 2", "1+2=3\n#### 3"),
    "",
    row("1 2 3 4 5 6 7 8 9", "#### 45"),
    row("1 2", "#### 3"),
    row("5", "five"),
    row("7", "#### 12345678"),
    row("8", "8+0=8\n" * 9 + "#### 8"),
    row("9", "#### 9"),
]


@pytest.fixture
def source(tmp_path):
    write_trained(["1+2=3\n#### 3"] * 4, 300, tmp_path)
    return write_lines(tmp_path / "rows.jsonl", *LINES)


def stream(source, limit=None, max_bad_share=0.5, **changes):
    lengths = {"max_prompt_length": 12, "seq_length": 4, "sft_length": 40} | changes
    encoder = make_encoder(source.parent, None, dataset(max_bad_share=max_bad_share), tokenize(**lengths))
    output = source.parent / "out"
    output.mkdir()
    cards = tokenize_file(encoder, [source], output / "rows.mindrecord", limit, sft=output / "sft.mindrecord")
    return encoder, cards, named(output / "rows.dropped.jsonl"), output


def named(path):
    """The rows left out; no file, none."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_every_row_is_written_or_named(source):
    encoder, cards, dropped, output = stream(source, over_long="drop")
    assert {(entry["file"], entry["line"]): entry["reason"] for entry in dropped} == {
        ("rows.mindrecord", 2): "blank line",
        ("rows.mindrecord", 3): "prompt_ids is longer than tokenize.max_prompt_length",
        ("rows.mindrecord", 5): NO_TRUTH,
        ("rows.mindrecord", 6): "pretrain_ids is longer than tokenize.seq_length",
        ("sft.mindrecord", 7): "the example is longer than tokenize.sft_length",
    }
    for name, column in (("rows", "prompt_ids"), ("sft", "input_ids")):
        card = cards[name]
        assert card["rows_in"] == card["rows_out"] + sum(card["dropped"].values())
        assert len(read_columns(output / f"{name}.mindrecord", [column])[column]) == card["rows_out"]
    assert cards["rows"]["duplicates"] == 1
    assert cards["rows"]["samples"][0] == {"prompt": "1 2\n", "solution": "3"}
    assert cards["sft"]["samples"][0] == {"text": "1 2\n1+2=3\n#### 3<|im_end|>"}
    assert encoder.ids.eos == (encoder.tokenizer.token_to_id("<|im_end|>"),)


def test_truncated_examples_are_counted(source):
    _, cards, dropped, output = stream(source, over_long="truncate")
    assert {entry["line"] for entry in dropped} == {2, 3, 5, 6}  # questions and ground truths are never cut
    assert cards["rows"]["truncated"] == {}
    assert cards["sft"]["truncated"] == {"input_ids": 1}
    assert cards["rows"]["rows_out"] == 4
    labels = read_columns(output / "sft.mindrecord", ["labels"])["labels"]
    assert (labels[-2] != -100).sum() == 40 - 2  # the long answer fills the example behind "8\n"


def test_compat_truncates_whatever_the_config_says(source):
    _, cards, dropped, _ = stream(source, over_long="drop", compat="mindrlhf")
    assert [entry["line"] for entry in dropped if entry["file"] == "rows.mindrecord"] == [2]
    assert cards["rows"]["truncated"] == {"prompt_ids": 1, "pretrain_ids": 1}


def test_only_the_first_rows_are_used_when_a_limit_is_set(source):
    _, cards, _, _ = stream(source, limit=1)
    assert cards["rows"]["rows_in"] == cards["rows"]["rows_out"] == 1
