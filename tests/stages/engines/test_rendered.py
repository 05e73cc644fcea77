"""Rendered files stay as they are, byte for byte, unless a change of tests/data/rendered.json is meant."""

import json

import pytest

from tests.stages.engines.rendered import DIGESTS, configurations, digest

RECORDED = json.loads(DIGESTS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("overrides", [*configurations()], ids=" ".join)
def test_rendered_files_stay_as_they_are(overrides):
    name = " ".join(overrides)
    remedy = f"`python -m tests.stages.engines.rendered {name}` prints the files, alone it records"
    assert digest(overrides) == RECORDED.get(name), remedy
