"""Malformed files of every format: each is read correctly or refused by name, in bounded time and memory."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.files import case, judged, made
from tests.fuzz.formats import FORMATS, changeable
from tests.fuzz.mutations import REPLACEMENTS, replace


@pytest.mark.parametrize("name", FORMATS)
def test_a_valid_file_is_read(name, tmp_path):
    FORMATS[name].read(made(name, tmp_path))


@pytest.mark.hypothesis
@pytest.mark.parametrize("name", FORMATS)
def test_a_changed_file_is_right_or_refused_by_name(name):
    @settings(max_examples=max(6, settings().max_examples // 8))
    @given(st.integers(0, 2**32))
    def check(number):
        with tempfile.TemporaryDirectory() as directory:
            problem = case(name, number, Path(directory))
        assert problem is None, problem

    check()


@pytest.mark.parametrize("way", REPLACEMENTS)
@pytest.mark.parametrize("name", FORMATS)
def test_something_else_in_a_file_s_place_is_refused_by_name(name, way, tmp_path):
    files = [
        path.relative_to(tmp_path / name) for path in changeable(made(name, tmp_path), FORMATS[name].files)
    ]
    for file in files[:: max(1, len(files) // 3)]:
        place = made(name, tmp_path)
        replace(place / file, way)
        find = judged(name, place, 0, f"{file}: {way}")
        assert find is None, find
