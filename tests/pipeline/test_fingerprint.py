import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import pipeline.fingerprint
from pipeline.config.load import load
from pipeline.fingerprint import cached_digest
from pipeline.plan import graph
from pipeline.plan.graph import plan
from tests.pipeline.stage_digests import LEARNING_RATE, WEIGHTS

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "fingerprints.json").read_text())
"""Overrides -> stage -> fingerprint, of releases before."""


@pytest.mark.parametrize("line", GOLDEN, ids=lambda line: line or "defaults")
def test_fingerprints_of_existing_stores_stay(line):
    """A change here computes everybody's artifacts again: name it in CHANGELOG, and why it must be."""
    tiny = () if "model" in line or "experiment" in line else WEIGHTS
    recipe = () if "experiment" in line else ("train.steps=40", f"train.learning_rate={LEARNING_RATE}")
    specs = plan(load(["sft.stop_accuracy=0.5", *recipe, *line.split(), *tiny]), lambda path: "x").specs
    assert {spec.name: spec.key.fingerprint[:16] for spec in specs} == GOLDEN[line]


FALLING = ("train.num_iterations=2", "train.schedule=linear")
SEVEN = "engine=mindrlhf model=qwen2_5_7b model.path=/nowhere layout=dp1_mp4_pp2"
RL = "experiment=mindspeed_rl_7b model.path=/nowhere dataset.path=/nowhere"
CORRECTED = {
    "": [],
    "train.num_iterations=2 train.schedule=constant": [],
    " ".join(FALLING): ["grpo"],
    "rollout.num_generations=4": [],
    "rollout.num_generations=10": ["grpo"],
    "rollout.min_tokens=2 rollout.repetition_penalty=1.2": [],
    "train.validate_every=4": [],
    "train.validate_every=4 rollout.min_tokens=2": ["grpo"],
    "train.validate_every=4 rollout.repetition_penalty=1.2": ["grpo"],
    "train.validate_every=4 reward=knights": ["grpo", "evaluate"],
    "reward=knights": ["evaluate"],
    SEVEN: [],
    f"{SEVEN} {' '.join(FALLING)}": ["grpo"],
    RL: [],
    f"{RL} train.warmup_steps=3": ["grpo"],
}
"""Overrides -> stages whose artifacts earlier versions made wrongly."""


@pytest.mark.parametrize("line", CORRECTED, ids=lambda line: line or "defaults")
def test_corrections_change_only_wrong_artifacts(line, monkeypatch):
    config = load(line.split())
    specs = plan(config, lambda path: "x").specs
    assert [spec.name for spec in specs if spec.stage.corrections] == CORRECTED[line]
    uncorrected = tuple(replace(stage, corrections=()) for stage in graph.stages(config))
    monkeypatch.setattr(graph, "stages", lambda config: uncorrected)
    before = {spec.name: spec.key for spec in plan(config, lambda path: "x").specs}
    changed = {spec.name for spec in specs if spec.key != before[spec.name]}
    downstream = {"evaluate", "export", "report"}
    assert changed == ({*CORRECTED[line], *downstream} if CORRECTED[line] else set())


def test_digests_are_cached_until_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file, cache = tmp_path / "data", tmp_path / "cache" / "grpoflow" / "digest"
    one, two = (hashlib.sha256(content).hexdigest() for content in (b"one", b"two"))
    file.write_bytes(b"one")
    assert cached_digest(file) == one and not cache.exists()  # it may change again at once
    monkeypatch.setattr(pipeline.fingerprint, "SETTLED_NS", -1)
    assert cached_digest(file) == one
    with monkeypatch.context() as unreadable:
        unreadable.setattr(pipeline.fingerprint, "file_digest", None)
        assert cached_digest(file) == one
    (cached,) = cache.iterdir()
    for damaged in ("{broken", "[]", "null"):
        cached.write_text(damaged)
        assert cached_digest(file) == one
    stat = file.stat()
    with file.open("r+b") as stream:  # in place: the inode stays, and so does the size
        stream.write(b"two")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert cached_digest(file) == two
