import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.base.errors import InputError
from stages.fetch.tokenizer_files import write_trained
from stages.tokenize.packing import Passage, read_passages
from stages.tokenize.records import read_columns
from stages.tokenize.stage import make_encoder, tokenize_path
from tests.stages.fetch.settings import dataset, tokenize, write_lines


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer")
    write_trained(["the cat sat on the mat\n\nand slept.\n"] * 4, 300, path)
    return path


def pack(directory, source, output, length=7, **changes):
    encoder = make_encoder(directory, None, dataset(**changes), tokenize("text", sft_length=length))
    (card,) = tokenize_path(encoder, source, output).values()
    return encoder, card, read_columns(output / f"{source.stem}.mindrecord", ["input_ids"])["input_ids"]


def test_documents_follow_each_other_and_nothing_is_lost(tmp_path, directory):
    texts = ["the cat", "sat on the mat and slept.", "<|endoftext|>"]
    source = write_lines(tmp_path / "docs.jsonl", *({"text": text} for text in texts), {"text": 1})
    encoder, card, ids = pack(directory, source, tmp_path / "out", max_bad_share=0.5)
    end = encoder.tokenizer.token_to_id("<|endoftext|>")
    expected = [i for text in texts for i in (*encoder.batch([text])[0], end)]
    assert ids.shape[1] == 8
    assert ids.dtype == np.int32
    assert ids.ravel()[: len(expected)].tolist() == expected
    assert (ids.ravel()[len(expected) :] == encoder.ids.pad).all()
    assert card["padding"] == ids.size - len(expected)
    assert card["records"] == len(ids)
    assert (card["rows_in"], card["rows_out"], sum(card["dropped"].values())) == (4, 3, 1)
    assert expected.count(end) == 3  # the literal one is only text
    assert json.loads((tmp_path / "out" / "docs.dropped.jsonl").read_text())["line"] == 4


LINE = st.lists(
    st.sampled_from(["a", "the cat", " ", "  ", "\t", "\r", "é", "\u2028", "\x1c", "", "1.", "'s"])
).map("".join)


@given(lines=st.lists(LINE, min_size=1, max_size=12), final=st.sampled_from(["", "\n"]))
def test_a_text_read_in_paragraphs_has_the_ids_of_the_whole_text(directory, lines, final):
    text = "\n".join(lines) + final
    encoder = make_encoder(directory, None, dataset(), tokenize("text"))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "wiki.train.tokens"
        path.write_bytes(text.encode())
        passages = [entry for entry in read_passages(path) if isinstance(entry, Passage)]
    if not passages:
        assert not text.strip()
        return
    assert [passage.ends for passage in passages] == [False] * (len(passages) - 1) + [True]
    apart = [i for ids in encoder.batch([passage.text for passage in passages]) for i in ids]
    if "".join(passage.text for passage in passages) == text:
        assert apart == encoder.batch([text])[0]
    else:  # only blank lines at the end may be missing
        assert not text.removeprefix("".join(passage.text for passage in passages)).strip()


def test_a_line_that_is_no_text_is_named_and_the_rest_kept(tmp_path, directory):
    source = tmp_path / "a.txt"
    source.write_bytes(b"the cat\n\xff\xfe\nsat\n\n\non the mat\n")
    encoder, card, ids = pack(directory, source, tmp_path / "out", max_bad_share=0.5)
    text = encoder.tokenizer.decode(ids.ravel().tolist())
    assert text == "the cat\nsat\n\n\non the mat\n"
    assert (card["rows_in"], card["rows_out"], card["dropped"]) == (3, 2, {"not UTF-8 at byte 0": 1})
    with pytest.raises(InputError, match=r"a\.txt:2: not UTF-8"):
        pack(directory, source, tmp_path / "out", max_bad_share=0.1)


@pytest.mark.parametrize("content", [b"", b"\n \n\n"])
def test_a_text_without_words_is_an_error(tmp_path, directory, content):
    source = tmp_path / "a.txt"
    source.write_bytes(content)
    with pytest.raises(InputError, match=r"a\.txt"):
        pack(directory, source, tmp_path / "out", max_bad_share=1.0)
