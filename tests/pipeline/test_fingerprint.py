import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

import pipeline.fingerprint
from pipeline.cache import recall, remember
from pipeline.config.load import load
from pipeline.fingerprint import cached_digest
from pipeline.plan.graph import plan
from tests.pipeline.stage_digests import LEARNING_RATE, WEIGHTS

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "fingerprints.json").read_text())
"""Overrides -> stage -> first digits of its fingerprint."""


@pytest.mark.parametrize("line", GOLDEN, ids=lambda line: line or "defaults")
def test_fingerprints_of_existing_stores_stay(line):
    """A change here computes everybody's artifacts again: name it in CHANGELOG, and why it must be."""
    tiny = () if "model" in line or "experiment" in line else WEIGHTS
    recipe = () if "experiment" in line else ("train.steps=40", f"train.learning_rate={LEARNING_RATE}")
    specs = plan(load(["sft.stop_accuracy=0.5", *recipe, *line.split(), *tiny]), lambda path: "x").specs
    assert {spec.name: spec.key.fingerprint[:16] for spec in specs} == GOLDEN[line]


def test_digests_are_cached_until_the_file_changes(tmp_path, monkeypatch, cache):
    file, digests = tmp_path / "data", cache / "digest"
    one, two = (hashlib.sha256(content).hexdigest() for content in (b"one", b"two"))
    file.write_bytes(b"one")
    assert cached_digest(file) == one and not digests.exists()  # it may change again at once
    monkeypatch.setattr(pipeline.fingerprint, "SETTLED_NS", -1)
    assert cached_digest(file) == one
    with monkeypatch.context() as unreadable:
        unreadable.setattr(pipeline.fingerprint, "file_digest", None)
        assert cached_digest(file) == one
    (cached,) = digests.iterdir()
    for damaged in ("{broken", "[]", "null"):
        cached.write_text(damaged)
        assert cached_digest(file) == one
    stat = file.stat()
    with file.open("r+b") as stream:  # in place: the inode stays, and so does the size
        stream.write(b"two")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert cached_digest(file) == two


def test_a_full_disk_leaves_no_temporary_file(tmp_path, monkeypatch, cache):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    remember("kind", "key", {"a": 1})
    assert list((cache / "kind").iterdir()) == [] and recall("kind", "key") is None
