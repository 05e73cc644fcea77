"""Every place that a rehearsal stands on is at the line that we read."""

import pytest

from stages.engines.mindformers.rehearsal import locations as mindformers
from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.mindrlhf.rehearsal import locations as mindrlhf
from stages.engines.rehearsal import moved

pytestmark = [pytest.mark.upstream, pytest.mark.core]


@pytest.mark.parametrize(
    ("name", "version", "locations"),
    [
        *(("mindrlhf", version, mindrlhf.LOCATIONS) for version in VERSIONS),
        ("mindformers", mindformers.COMMIT, mindformers.LOCATIONS),
    ],
)
def test_places_are_where_they_were_read(checkout, name, version, locations):
    home = checkout(f"{name}-{version}")
    assert list(moved(home, "", locations, version)) == []
    for location in locations:
        if line := location.lines.get(version):
            text = (home / location.file).read_text(encoding="utf-8")
            assert location.words in text.splitlines()[line - 1], location
