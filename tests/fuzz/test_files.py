"""Some cases of every format; `make fuzz` tries them for as long as one likes."""

import pytest

from tests.fuzz.files import case, judged, made
from tests.fuzz.formats import FORMATS, changeable
from tests.fuzz.mutations import REPLACEMENTS, replace

CASES = 6


@pytest.mark.parametrize("name", FORMATS)
def test_a_valid_file_is_read(name, tmp_path):
    FORMATS[name].read(made(name, tmp_path))


@pytest.mark.parametrize("name", FORMATS)
def test_a_changed_file_is_right_or_refused_by_name(name, tmp_path):
    for number in range(CASES):
        found = case(name, number, tmp_path)
        assert found is None, found


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
