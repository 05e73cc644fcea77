"""Malformed files of every format: each is read, or refused with its path, in bounded time and memory."""

import contextlib
import io
import re
import resource
import shutil
import tempfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import REPORTED
from tests.properties.formats import FORMATS
from tests.properties.mutations import REPLACEMENTS, replace

LIMIT_BYTES = 1 << 30
"""Additional memory for reading files of kilobytes."""
KEY = re.compile(r"^[a-z_]+(\.[a-z_]+)+")


def make(name, parent):
    """Return a directory with valid files of a format, and the files that may be changed."""
    directory = parent / name
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    FORMATS[name].make(directory)
    files = sorted(directory.glob(FORMATS[name].files))
    return directory, [file for file in files if file.is_file() and not file.is_symlink()]


def check_reading(name, directory):
    """Read changed files; an error must name a path or a key."""
    with memory_limit(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            FORMATS[name].read(directory)
        except REPORTED as error:
            assert str(directory) in str(error) or KEY.match(str(error))


@contextlib.contextmanager
def memory_limit():
    """Limit the memory of this process; pytest-timeout limits its time."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + LIMIT_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", FORMATS)
def test_changed_files_are_read_or_refused(name):
    with tempfile.TemporaryDirectory() as parent:
        FORMATS[name].read(make(name, Path(parent))[0])  # as written, they are valid

    @settings(max_examples=max(6, settings().max_examples // 8))
    @given(st.integers(0, 2**32))
    def check(seed):
        source = Random(f"{name} {seed}")
        with tempfile.TemporaryDirectory() as parent:
            directory, files = make(name, Path(parent))
            file = source.choice(files)
            data = file.read_bytes()
            for _ in range(source.choice((1, 1, 1, 2, 3))):
                data = source.choice(FORMATS[name].mutations)(data, source)
            file.write_bytes(data)
            check_reading(name, directory)

    check()


@pytest.mark.parametrize("replacement", REPLACEMENTS)
@pytest.mark.parametrize("name", FORMATS)
def test_replaced_files_are_refused(name, replacement, tmp_path):
    directory, files = make(name, tmp_path)
    replace(Random(f"{name} {replacement}").choice(files), replacement)
    check_reading(name, directory)
