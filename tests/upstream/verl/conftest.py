"""The environment of verl, and runs that several tests share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.upstream.programs import run
from tests.upstream.verl.product import SHAPE, Verl

PREPARE = Path(__file__).parent / "prepare.py"


@pytest.fixture(scope="session")
def verl(interpreter, tmp_path_factory):
    data = tmp_path_factory.mktemp("verl_data")
    python = interpreter("verl")
    run(python, PREPARE, data, json.dumps(SHAPE))
    return Verl(python, data)


@pytest.fixture(scope="session")
def trained(verl, tmp_path_factory):
    """Return a function: overrides -> a run, which is made once."""
    runs = {}

    def train(*overrides):
        if overrides not in runs:
            runs[overrides] = verl.train(tmp_path_factory.mktemp("run"), *overrides)
        return runs[overrides]

    return train
