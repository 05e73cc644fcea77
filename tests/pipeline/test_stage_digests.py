"""Check that no output changed without a raised version in stages/catalog.py."""

import copy
import json

from stages.catalog import STAGES
from tests.pipeline.stage_digests import GOLDEN, PROGRAMS, RELATIVE, of_engines, of_stages, problems


def test_no_output_changed_without_its_version():
    now = {**of_stages(), **of_engines()}
    known = json.loads(GOLDEN.read_text())
    assert now.keys() <= known.keys()
    assert {name.partition("/")[0] for name in known} == {*STAGES, *PROGRAMS}
    assert list(problems(now, known)) == []


def test_changes_are_reported():
    known = json.loads(GOLDEN.read_text())
    now = copy.deepcopy(known)
    now["tokenize"]["digest"] = "other"
    assert "tokenize: its output changed, its version" in next(problems(now, known))
    now["tokenize"]["version"] += 1
    assert "has no digest" in next(problems(now, known))
    assert "versions only rise" in next(problems(known, now))
    near, far = copy.deepcopy(known), copy.deepcopy(known)
    near["grpo"]["values"][-1] *= 1 + RELATIVE / 2
    far["grpo"]["values"][-1] *= 1 + RELATIVE * 2
    assert list(problems(near, known)) == []
    assert "grpo: its output changed" in next(problems(far, known))
