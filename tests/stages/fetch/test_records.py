import json
import tracemalloc
from decimal import Decimal
from pathlib import Path

import pytest

from stages.base.errors import InputError
from stages.fetch.config import ColumnsConfig
from stages.fetch.records import LARGEST, TOO_LONG, BadLine, Record, Row, read_lines, read_records


def write(directory, name, rows):
    """The same rows as each file type that grpoflow reads."""
    path = Path(directory) / name
    if path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(rows), path, row_group_size=7)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_a_parquet_file_without_the_columns_is_refused_with_its_columns(tmp_path):
    path = write(tmp_path, "b.parquet", [{"problem": "x", "solution": "y"}])
    with pytest.raises(InputError, match=r"=\['answer'\]: has no such column \(it has: problem, solution\)"):
        list(read_lines(path, ColumnsConfig("problem", "answer")))


@pytest.mark.parametrize("end", ["", "\n"], ids=["the file ends in it", "more follows"])
def test_a_line_without_end_is_a_single_bad_line_and_fills_no_memory(tmp_path, end):
    path = tmp_path / "train.jsonl"
    good = json.dumps({"question": "q", "answer": "a"}) + "\n"
    with path.open("w") as file:
        file.write(good)
        for _ in range(100):
            file.write("[[]," * (1 << 18))  # 100 MiB, which as values take gigabytes
        file.write(end + (good if end else ""))
    tracemalloc.start()
    result = list(read_records(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert result[1] == BadLine(2, TOO_LONG)
    assert [item.line for item in result if isinstance(item, Record)] == ([1, 3] if end else [1])
    assert peak < 5 * LARGEST


def test_parquet_columns_with_equal_names_are_refused(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    names = ["question", "answer", "id", "answer", "id"]
    table = arrow.Table.from_arrays([arrow.array([name]) for name in names], names=names)
    parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet=\['answer', 'id'\]: columns must have different names"):
        list(read_records(tmp_path / "a.parquet", ("question",)))


COLUMNS = ColumnsConfig(prompt="question", answer="answer")
GOOD = b'{"question": "a", "answer": "b"}'


def read_bytes(tmp_path, *lines):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return list(read_lines(path, COLUMNS))


@pytest.mark.parametrize(
    "line",
    [
        b"", b"  \t", b"{", GOOD + b" x", b"[1]", b'{"question": "a"}', b"[" * 100_000,
        b'{"question": 3, "answer": "b"}', b'{"question": null, "answer": "b"}',
        b'{"question": "", "answer": "b"}', b'{"question": "\xff", "answer": "b"}',
        b'{"question": "\\ud800", "answer": "b"}',
    ],
)  # fmt: skip
def test_a_bad_line_is_named_by_its_number(tmp_path, line):
    result = read_bytes(tmp_path, GOOD, line, GOOD)
    assert [(type(entry), entry.line) for entry in result] == [(Row, 1), (BadLine, 2), (Row, 3)]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("18", "18"), ("-18", "-18"), ("18.0", "18"), ("0.50", "0.5"), ("-2.5e-7", "-0.00000025"),
        ("1e21", "1" + 21 * "0"),
        ("12345678901234567890", "12345678901234567890"), ("0.1", "0.1"), ('"18.0"', "18.0"),
        ('["18"]', "18"), ("[18]", "18"), ("[18.5]", "18.5"),
        # neither text nor a number
        ("true", None), ("null", None), ("NaN", None), ("Infinity", None), ("[]", None),
        ('["18", "19"]', None),
        ("[null]", None), ("[[18]]", None), ('{"value": 18}', None), ('""', None),
    ],
)  # fmt: skip
def test_answers_may_be_numbers_or_a_list_of_one(tmp_path, answer, text):
    (entry,) = read_bytes(tmp_path, b'{"question": "a", "answer": ' + answer.encode() + b"}")
    assert entry == Row(1, "a", text) if text is not None else isinstance(entry, BadLine)


def test_numbers_of_parquet_columns_become_text(tmp_path):
    pytest.importorskip("pyarrow")
    rows = [{"question": "a", "answer": value} for value in (Decimal("18.50"), Decimal("-3.00"))]
    path = write(tmp_path, "a.parquet", rows)
    assert [row.answer for row in read_lines(path, COLUMNS)] == ["18.5", "-3"]
    path = write(tmp_path, "b.parquet", [{"question": "a", "answer": 18}, {"question": "a", "answer": 0}])
    assert [row.answer for row in read_lines(path, COLUMNS)] == ["18", "0"]


USER = {"role": "user", "content": "How many?"}


@pytest.mark.parametrize(
    ("prompt", "text", "reason"),
    [
        ([USER], "How many?", ""),
        ([{"role": "system", "content": "Be brief."}, USER], None, "move a system message"),
        ([USER, {"role": "assistant", "content": "Two."}, USER], None, "leave out other turns"),
        ([{"role": "assistant", "content": "Two."}], None, "a single message of role user"),
        ([{"role": "user"}], None, "the content of its message"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}]}], None, "the content of its message"),
        ([{"from": "human", "value": "How many?"}], None, "a single message {"),
        ([], None, "a single message {"),
        ([{"role": "user", "content": ""}], None, "is empty"),
        (["How many?"], None, "a single message {"),
    ],
)  # fmt: skip
def test_a_prompt_may_be_a_single_chat_message(tmp_path, prompt, text, reason):
    row = {"question": prompt, "answer": "2"}
    for name in ("a.jsonl", "a.json", *(["a.parquet"] if text else [])):
        (entry,) = read_lines(write(tmp_path, name, [row]), COLUMNS)
        if text:
            assert (entry.prompt, entry.answer) == (text, "2")
        else:
            assert isinstance(entry, BadLine) and reason in entry.reason


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(tmp_path):
    result = read_bytes(tmp_path, b"\xef\xbb\xbf" + GOOD + b"\r", GOOD + b"\r")
    assert result == [Row(1, "a", "b"), Row(2, "a", "b")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.parquet"])
def test_rows_have_their_columns_as_the_file_has_them(tmp_path, name):
    rows = [{"q": [{"role": "user", "content": "1+1?"}], "a": 2, "level": 3}]
    (row,) = read_lines(write(tmp_path, name, rows), ColumnsConfig("q", "a"), with_all=True)
    assert row == Row(1, "1+1?", "2", rows[0])
