"""Every place that a rehearsal stands on is at the line that we read."""

import pytest

from stages.engines.mindformers.rehearsal import places as mindformers
from stages.engines.mindrlhf.config import VERSIONS
from stages.engines.mindrlhf.rehearsal import places as mindrlhf
from stages.engines.rehearsal import moved

pytestmark = [pytest.mark.upstream, pytest.mark.core]


@pytest.mark.parametrize(
    ("name", "version", "places"),
    [
        *(("mindrlhf", version, mindrlhf.PLACES) for version in VERSIONS),
        ("mindformers", mindformers.COMMIT, mindformers.PLACES),
    ],
)
def test_places_are_where_they_were_read(checkout, name, version, places):
    home = checkout(f"{name}-{version}")
    assert list(moved(home, "", places, version)) == []
    for place in places:
        if line := place.lines.get(version):
            text = (home / place.file).read_text(encoding="utf-8")
            assert place.words in text.splitlines()[line - 1], place
