"""Readers of files. That each of them uses open_regular: tests/properties/test_files.py."""

import os

import pytest

from stages.base.errors import InputError
from stages.base.files import open_regular, parse_json, read_object, read_optional_object, understood


@pytest.mark.timeout(30)
def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "directory").mkdir()
    for kind in ("pipe", "device", "directory"):
        with pytest.raises(OSError, match=rf"a {kind}, not a file"):
            open_regular(tmp_path / kind)


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"\xff", b"", b"[" * 100_000])
def test_a_file_without_an_object_is_refused_with_the_remedy(content, tmp_path):
    file = tmp_path / "file"
    assert read_optional_object(file) == {}
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=f"{file}: .*; write it again"):
        read_object(file, "write it again")


@pytest.mark.parametrize(
    "wrong",
    [lambda values: values["b"], lambda values: values["a"]["x"], lambda values: values["a"][3],
     lambda values: int("x"), lambda values: values.nothing],
)  # fmt: skip
def test_wrong_values_are_an_error_of_the_file(wrong, tmp_path):
    with pytest.raises(InputError) as refused, understood(tmp_path, "a list of numbers", "write it again"):
        wrong(parse_json('{"a": [1]}'))
    assert (refused.value.problem.path, refused.value.problem.remedy) == (str(tmp_path), "write it again")
