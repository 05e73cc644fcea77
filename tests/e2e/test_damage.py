"""Every kind of artifact, damaged: it is named, and exactly that one is built again."""

import os

import pytest

from pipeline.store.store import MANIFEST, Store
from pipeline.store.verify import quarantine, verify
from tests.e2e.conftest import run, to_build
from tests.e2e.test_chain import CHAIN
from tests.pipeline.artifacts import flip


def files_of(artifact):
    return [
        file
        for file in sorted(artifact.rglob("*"))
        if file.is_file() and not file.is_symlink() and file.stat().st_size and file.name != MANIFEST
    ]


@pytest.mark.parametrize("stage", CHAIN)
def test_damage_to_any_file_is_detected_and_rebuilds_only_its_stage(copy, stage):
    store = Store(copy)
    (artifact,) = (copy / stage).glob("[0-9a-f]*")
    for file in files_of(artifact):
        middle = file.stat().st_size // 2
        flip(file, middle)
        (finding,) = verify(store, deep=True)
        assert finding.path == artifact and str(file.relative_to(artifact)) in finding.problem
        flip(file, middle)  # as it was
    assert list(verify(store, deep=True)) == []
    os.truncate(file, middle)
    assert to_build(copy) == [stage]
    (finding,) = verify(store, deep=True)
    quarantine(store, finding)
    assert list(verify(store, deep=True)) == []
    assert to_build(copy) == [stage]


def test_damaged_input_is_rebuilt_before_use(without):
    store = without("split")
    (artifact,) = (store / "fetch").glob("[0-9a-f]*")
    weights = max(files_of(artifact), key=lambda file: file.stat().st_size)
    assert weights.stat().st_size > 2**16
    flip(weights, weights.stat().st_size - 1)
    assert to_build(store) == ["split"]  # a plan does not read gigabytes
    refused = run(store, code=1)
    assert "split failed: its input fetch" in refused.stderr
    assert f"{weights.name} has sha256" in refused.stderr
    assert "repeat the command to rebuild" in refused.stderr
    assert not list((store / "split").glob("[0-9a-f]*"))
    again = run(store)
    assert sorted(again.started) == ["fetch", "split"]
    assert list(verify(Store(store), deep=True)) == []
