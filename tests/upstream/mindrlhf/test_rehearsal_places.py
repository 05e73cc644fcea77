"""Every place that a rehearsal stands on is at the line that we read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from stages.engines.mindrlhf.config import VERSIONS, Version
from stages.engines.mindrlhf.rehearsal.places import PLACES, check

pytestmark = [pytest.mark.upstream, pytest.mark.core]


@pytest.mark.parametrize("version", VERSIONS)
def test_places_are_where_they_were_read(checkout: Callable[[str], Path], version: Version) -> None:
    homes = {"mindrlhf": checkout(f"mindrlhf-{version}"), "mindformers": checkout("mindformers-051d65f")}
    assert list(check(homes, version)) == []
    for place in PLACES:
        for commit, line in place.lines.items():
            if commit in (version, "051d65f"):
                text = (homes[place.repository] / place.file).read_text(encoding="utf-8")
                assert place.words in text.splitlines()[line - 1], place
