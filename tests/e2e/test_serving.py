"""What leaves the store loads elsewhere and answers as evaluate saw it."""

import re
import sys

import pytest

from tests.e2e.conftest import finish


def test_an_exported_model_answers_as_evaluate_saw_it(copy):
    pytest.importorskip("transformers")
    line = [sys.executable, "-m", "pipeline.cli", "serve-check", "last", f"store={copy}"]
    done = finish(line, copy, code=0)
    equal, total = re.search(r"(\d+) of (\d+) answers equal", done.stdout).groups()
    assert equal == total != "0"
