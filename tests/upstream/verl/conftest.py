"""The environment of verl, and runs that several tests share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.upstream.programs import run
from tests.upstream.verl.runs import Verl, algorithm

PREPARE = Path(__file__).parent / "prepare.py"


@pytest.fixture(scope="session")
def verl(interpreter, tmp_path_factory):
    data = tmp_path_factory.mktemp("verl_data")
    python = interpreter("verl")
    run(python, PREPARE, data)
    return Verl(python, data)


@pytest.fixture(scope="session")
def trained(verl, tmp_path_factory):
    """Return a function: algorithm, workers -> a run, which is made once."""
    runs = {}

    def train(name, workers):
        if (name, workers) not in runs:
            directory = tmp_path_factory.mktemp(f"{name}_{workers}")
            runs[name, workers] = verl.train(directory, workers, algorithm(name))
        return runs[name, workers]

    return train
