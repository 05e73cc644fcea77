"""Some cases of every format; `make fuzz` tries them for as long as one likes."""

from pathlib import Path

import pytest

from tests.fuzz.files import case
from tests.fuzz.formats import FORMATS

CASES = 25


@pytest.mark.parametrize("name", FORMATS)
def test_a_valid_file_is_read(name: str, tmp_path: Path) -> None:
    root = tmp_path / name
    root.mkdir()
    FORMATS[name].make(root)
    FORMATS[name].read(root)


@pytest.mark.parametrize("name", FORMATS)
def test_a_changed_file_is_right_or_refused_by_name(name: str, tmp_path: Path) -> None:
    for number in range(CASES):
        found = case(name, number, tmp_path)
        assert found is None, found
