"""A changed output needs a raised version; the stages' own digests are compared in tests/e2e."""

import copy
import json

from tests.pipeline.stage_digests import GOLDEN, of_engines, problems


def test_the_files_of_outside_engines() -> None:
    assert list(problems(of_engines(), json.loads(GOLDEN.read_text()))) == []


def test_what_is_told_of_a_change() -> None:
    known = json.loads(GOLDEN.read_text())
    assert list(problems(known, known)) == []
    now = copy.deepcopy(known)
    now["tokenize"]["digest"] = "other"
    assert "tokenize: its output changed, its version" in next(problems(now, known))
    now["tokenize"]["version"] += 1
    assert "has no digest" in next(problems(now, known))
    assert "versions only rise" in next(problems(known, now))
    now = copy.deepcopy(known)
    now["grpo"]["numbers"]["loss"] += 0.1
    assert next(problems(now, known)).startswith("grpo: loss was")
