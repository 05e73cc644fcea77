"""Every checkout contains the code that a rehearsal replaces."""

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
def test_checkouts_contain_the_replaced_code(checkout, name, version, locations):
    home = checkout(f"{name}-{version}")
    assert list(moved(home, "", locations, version)) == []
