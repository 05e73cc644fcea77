"""What files hold is what was expected, or told by the file's name."""

import pytest

from stages.base.errors import InputError
from stages.base.files import parse_json, read_json, understood


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"", b"{"])
def test_what_is_no_json(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError):
        read_json(tmp_path / "file")


def test_json_is_what_it_is(tmp_path):
    (tmp_path / "file").write_text('{"ü": [1, null]}', encoding="utf-8")
    assert read_json(tmp_path / "file") == parse_json(b'{"\xc3\xbc": [1, null]}') == {"ü": [1, None]}


@pytest.mark.parametrize(
    "wrong",
    [lambda values: values["b"], lambda values: values["a"]["x"], lambda values: values["a"][3],
     lambda values: int("x"), lambda values: values.nothing],
)  # fmt: skip
def test_values_of_another_kind_are_told_by_the_file_s_name(wrong, tmp_path):
    told = f"{tmp_path}: does not hold a list of numbers: .*; write it again"
    with pytest.raises(InputError, match=told), understood(tmp_path, "a list of numbers", "write it again"):
        wrong(parse_json('{"a": [1]}'))
