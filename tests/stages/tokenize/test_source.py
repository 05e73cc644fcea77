"""Whatever a file holds: each row is in the MindRecord, or left out by name."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base.errors import InputError
from stages.fetch.records import count_rows
from stages.fetch.tokenizer_files import write_trained
from stages.tokenize.records import check_pair
from stages.tokenize.stage import make_encoder, tokenize_path
from tests.stages.fetch.settings import dataset, tokenize
from tests.stages.fetch.test_records import write

TEXT = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["#### 1", "a\n#### 22", "<|endoftext|>", "<|im_end|>", "  ", "\n\n"]),
)
ANY = st.none() | st.integers(0, 9) | TEXT
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
LENGTHS = {"max_prompt_length": 6, "seq_length": 3, "sft_length": 40}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    write_trained(["1+2=3\n#### 3"] * 4, 300, path)
    return path


def check(directory, source, kind, over_long, rows):
    """Tokenise `source`, which holds `rows` rows, and account for every one."""
    shipped = "arith" if kind == "grpo" else kind
    changes = {} if kind == "grpo" else {"sft_length": 40}
    config = tokenize(shipped, over_long=over_long, **(LENGTHS | changes))
    encoder = make_encoder(directory, None, dataset(max_bad_share=1.0), config)
    with tempfile.TemporaryDirectory() as name:
        output = Path(name)
        try:
            cards = tokenize_path(encoder, source, output, sft=kind == "grpo")
        except InputError as error:
            assert f"{source.name}" in str(error)
            assert "no row is left" in str(error)
            return
        ledger = output / f"{source.stem}.dropped.jsonl"
        lost = [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []
        result = {stem: check_pair(output / f"{stem}.mindrecord") for stem in cards}
    assert cards[source.stem]["rows_in"] == rows
    for stem, card in cards.items():
        entries = [entry for entry in lost if entry["file"] == f"{stem}.mindrecord"]
        assert card["rows_in"] == card["rows_out"] + len(entries)
        assert len(entries) == sum(card["dropped"].values())
        assert len({entry["line"] for entry in entries}) == len(entries)
        assert all(1 <= entry["line"] <= rows and entry["reason"] for entry in entries)
        assert card["records"] == result[stem]
        assert card["rows_out"] <= count_rows([source])


@pytest.mark.parametrize("kind", ROWS)
@given(data=st.data(), over_long=st.sampled_from(["drop", "truncate"]))
def test_json_lines(directory, kind, data, over_long):
    line = st.binary(max_size=20) | ROWS[kind].map(lambda row: json.dumps(row).encode())
    lines = [line.replace(b"\n", b"") for line in data.draw(st.lists(line, min_size=1, max_size=12))]
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "rows.jsonl"
        source.write_bytes(b"".join(line + b"\n" for line in lines))
        check(directory, source, kind, over_long, len(lines))


@pytest.mark.parametrize("kind", ROWS)
@given(data=st.data(), over_long=st.sampled_from(["drop", "truncate"]))
def test_json_arrays(directory, kind, data, over_long):
    rows = data.draw(st.lists(ROWS[kind] | ANY | st.lists(ANY, max_size=2), min_size=1, max_size=12))
    with tempfile.TemporaryDirectory() as name:
        check(directory, write(name, "rows.json", rows), kind, over_long, len(rows))


@pytest.mark.parametrize("kind", ["grpo", "alpaca"])
@given(data=st.data(), over_long=st.sampled_from(["drop", "truncate"]))
def test_parquet(directory, kind, data, over_long):
    keys = {"grpo": ["question", "answer"], "alpaca": ["instruction", "input", "output"]}[kind]
    columns = {key: st.none() | TEXT for key in keys}
    rows = data.draw(st.lists(st.fixed_dictionaries(columns), min_size=1, max_size=20))
    rows = [*rows, dict.fromkeys(keys, "#### 7")]  # a column of nothing but null has no text type
    with tempfile.TemporaryDirectory() as name:
        check(directory, write(name, "rows.parquet", rows), kind, over_long, len(rows))


def test_a_conversation_in_parquet(tmp_path, directory):
    turns = [{"from": "human", "value": "1+2"}, {"from": "gpt", "value": "3"}]
    source = write(tmp_path, "rows.parquet", [{"conversations": turns, "source": "x"}] * 3)
    encoder = make_encoder(directory, None, dataset(), tokenize("conversations", sft_length=200))
    card = tokenize_path(encoder, source, tmp_path)["rows"]
    assert (card["rows_out"], card["duplicates"]) == (3, 2)
    assert card["samples"][0]["learnt"] == "3<|im_end|>"
