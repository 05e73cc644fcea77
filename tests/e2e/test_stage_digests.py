"""Versions in pipeline/graph.py are raised by hand: a changed output without a raised one is seen here."""

import json
from pathlib import Path

import pytest

from tests.e2e.conftest import Finished
from tests.pipeline.stage_digests import GOLDEN, of_store, problems


@pytest.mark.slow
def test_no_output_changed_without_its_version(finished: tuple[Path, Finished]) -> None:
    assert list(problems(of_store(finished[0]), json.loads(GOLDEN.read_text()))) == []
