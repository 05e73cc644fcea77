import os
import socket

import pytest

from stages.base.errors import InputError
from stages.base.files import (
    open_regular,
    parse_json,
    read_json,
    read_object,
    read_optional_object,
    read_text,
    understood,
)


@pytest.fixture(params=["pipe", "socket", "device", "directory"])
def odd(request, tmp_path, monkeypatch):
    """Return a path that is no regular file, and its kind."""
    path = tmp_path / "odd"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        monkeypatch.chdir(tmp_path)  # a socket's address is short
        with socket.socket(socket.AF_UNIX) as unix:
            unix.bind("odd")
    elif request.param == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    return path, request.param


# That each reader asks open_regular: tests/properties/test_files.py puts a pipe in the place of every format.
@pytest.mark.timeout(30)
def test_only_regular_files_are_opened(odd):
    path, kind = odd
    with pytest.raises(OSError, match=rf"a {kind}, not a file|No such device"):
        open_regular(path)


def test_files_are_read(tmp_path):
    file = tmp_path / "file"
    file.write_text("ä")
    (tmp_path / "link").symlink_to(file)
    assert read_text(tmp_path / "link") == "ä"
    before = len(os.listdir("/proc/self/fd"))
    open_regular(file).close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff", b"", b"{"])
def test_malformed_json_is_a_value_error(content, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError):
        read_json(tmp_path / "file")


@pytest.mark.parametrize("content", [None, b"{", b"[]", b"\xff"])
def test_a_file_without_an_object_is_refused_with_the_remedy(content, tmp_path):
    file = tmp_path / "file"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(InputError, match=f"{file}: .*; write it again"):
        read_object(file, "write it again")
    if content is None:
        assert read_optional_object(file) == {}


@pytest.mark.parametrize(
    "wrong",
    [lambda values: values["b"], lambda values: values["a"]["x"], lambda values: values["a"][3],
     lambda values: int("x"), lambda values: values.nothing],
)  # fmt: skip
def test_wrong_values_are_an_error_of_the_file(wrong, tmp_path):
    with pytest.raises(InputError) as refused, understood(tmp_path, "a list of numbers", "write it again"):
        wrong(parse_json('{"a": [1]}'))
    assert (refused.value.problem.path, refused.value.problem.remedy) == (str(tmp_path), "write it again")
