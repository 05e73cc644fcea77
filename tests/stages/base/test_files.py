import os
import socket
import sys

import pytest

from stages.base.files import open_regular, read_bytes, read_text, shown_bytes


@pytest.fixture(params=["pipe", "socket", "device", "directory"])
def odd(request, tmp_path, monkeypatch):
    """Something that is no file, and the word for it."""
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
def test_the_kind_is_named(odd):
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


def test_an_interrupt_while_a_file_is_opened_is_no_error_of_the_file(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(b"x")

    def interrupt(frame, event, function):
        if event == "c_return" and function is open:
            sys.setprofile(None)
            raise KeyboardInterrupt

    before = os.listdir("/proc/self/fd")
    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            read_bytes(file)
    finally:
        sys.setprofile(None)
    assert os.listdir("/proc/self/fd") == before


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 20, "5.0 MiB"),
        (15 << 30, "15.0 GiB"),
        (3 << 50, "3072.0 TiB"),
    ],
)
def test_bytes_for_people_are_never_0_of_a_large_unit(count, text):
    assert shown_bytes(count) == text
