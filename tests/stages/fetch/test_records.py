import json
import tracemalloc
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


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(tmp_path):
    result = read_bytes(tmp_path, b"\xef\xbb\xbf" + GOOD + b"\r", GOOD + b"\r")
    assert result == [Row(1, "a", "b"), Row(2, "a", "b")]
