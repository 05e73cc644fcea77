import pytest

from stages.fetch.config import ColumnsConfig
from stages.fetch.jsonl import BadLine, Row, read_lines, write_rows

COLUMNS = ColumnsConfig(prompt="question", answer="answer")
GOOD = b'{"question": "a", "answer": "b"}'


def read_bytes(tmp_path, *lines):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path, list(read_lines(path, COLUMNS))


def test_what_is_written_is_read_back(tmp_path):
    rows = [("How many?\nTwo lines", "#### 1"), ("é 数 \u2028", "x")]
    write_rows(tmp_path / "a.jsonl", rows, COLUMNS)
    result = list(read_lines(tmp_path / "a.jsonl", COLUMNS))
    assert result == [Row(1, *rows[0]), Row(2, *rows[1])]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "blank line"),
        (b"  \t", "blank line"),
        (b"{", "not JSON"),
        (b'{"question": "a", "answer": "b"} x', "not JSON"),
        (b"[1]", "must be a JSON object, is list"),
        (b'{"question": "a"}', "has no key 'answer' (it has: 'question')"),
        (b'{"question": 3, "answer": "b"}', "'question' must be text, is int"),
        (b'{"question": null, "answer": "b"}', "'question' must be text, is NoneType"),
        (b'{"question": "", "answer": "b"}', "'question' is empty"),
        (b'{"question": "\xff", "answer": "b"}', "not UTF-8 at byte 14"),
        (b'{"question": "\\ud800", "answer": "b"}', "half of a surrogate pair"),
        (b"[" * 100_000, "not usable JSON"),
    ],
)
def test_a_bad_line_is_named_by_number_and_reason(tmp_path, line, reason):
    _, result = read_bytes(tmp_path, GOOD, line, GOOD)
    assert isinstance(result[1], BadLine)
    assert result[1].line == 2
    assert reason in result[1].reason
    assert [entry.line for entry in result] == [1, 2, 3]


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm(tmp_path):
    _, result = read_bytes(tmp_path, b"\xef\xbb\xbf" + GOOD + b"\r", GOOD + b"\r")
    assert result == [Row(1, "a", "b"), Row(2, "a", "b")]
