"""Check that no output changed without a raised version in stages/catalog.py."""

import json

from stages.catalog import STAGES
from tests.pipeline.stage_digests import GOLDEN, PROGRAMS, of_engines, of_stages, problems


def test_no_output_changed_without_its_version():
    now = {**of_stages(), **of_engines()}
    known = json.loads(GOLDEN.read_text())
    assert now.keys() <= known.keys()
    assert {name.partition("/")[0] for name in known} == {*STAGES, *PROGRAMS}
    assert list(problems(now, known)) == []
