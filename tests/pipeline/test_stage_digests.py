"""Check that no output changed without a raised version in stages/catalog.py."""

import json

from stages.catalog import STAGES
from tests.pipeline.stage_digests import GOLDEN, PROGRAMS, compare, of_engines, of_stages


def test_no_output_changed_without_its_version():
    compare({**of_stages(), **of_engines()})
    known = json.loads(GOLDEN.read_text())
    assert {name.partition("/")[0] for name in known} == {*STAGES, *PROGRAMS}
