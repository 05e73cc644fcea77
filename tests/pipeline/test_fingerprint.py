import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

import pipeline.fingerprint
from pipeline.config.load import load
from pipeline.fingerprint import cached_digest, file_digest, fingerprint
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
CORRECTED = {
    "": False,
    "train.num_iterations=2 train.schedule=constant": False,
    " ".join(FALLING): True,
    "rollout.num_generations=4": False,
    "rollout.num_generations=10": True,
    "rollout.min_tokens=2 rollout.repetition_penalty=1.2": False,
    "train.validate_every=4": False,
    "train.validate_every=4 rollout.min_tokens=2": True,
    "train.validate_every=4 rollout.repetition_penalty=1.2": True,
    "train.validate_every=4 reward=knights": True,
    "engine=mindrlhf model=qwen2_5_7b model.path=/nowhere layout=dp1_mp4_pp2": False,
    "engine=mindrlhf model=qwen2_5_7b model.path=/nowhere layout=dp1_mp4_pp2 " + " ".join(FALLING): True,
    "experiment=mindspeed_rl_7b model.path=/nowhere dataset.path=/nowhere": False,
    "experiment=mindspeed_rl_7b model.path=/nowhere dataset.path=/nowhere train.warmup_steps=3": True,
}
"""Overrides -> whether earlier versions trained such a configuration wrongly."""


@pytest.mark.parametrize("line", CORRECTED, ids=lambda line: line or "defaults")
def test_corrections_change_only_wrong_artifacts(line, monkeypatch):
    config = load(line.split())
    now = {spec.name: spec.key for spec in plan(config, lambda path: "x").specs}
    without = graph.stages(config)
    monkeypatch.setattr(
        graph, "stages", lambda config: tuple(replace(item, corrections=()) for item in without)
    )
    before = {spec.name: spec.key for spec in plan(config, lambda path: "x").specs}
    changed = {name for name in now if now[name] != before[name]}
    assert changed == ({"grpo", "evaluate", "export", "report"} if CORRECTED[line] else set())


def test_evaluate_judges_puzzles_again():
    for reward, expected in (("arith", []), ("knights", ["evaluate"])):
        stages = graph.stages(load([f"reward={reward}"]))
        assert [stage.name for stage in stages if stage.corrections] == expected


def test_fingerprint_is_the_documented_hash():
    text = '{"config":{"seed":0},"external":{},"inputs":{},"stage":"fetch","version":1}'
    assert fingerprint("fetch", 1, {"seed": 0}, {}, {}) == hashlib.sha256(text.encode()).hexdigest()


@pytest.fixture
def reads(monkeypatch):
    """Files that were read for their digests."""
    result: list[Path] = []

    def reading(path):
        result.append(path)
        return file_digest(path)

    monkeypatch.setattr(pipeline.fingerprint, "file_digest", reading)
    return result


@pytest.fixture
def digests(tmp_path, monkeypatch):
    """Directory of cached digests, empty at first."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "grpoflow" / "digest"


def test_digests_are_cached_until_the_file_changes(tmp_path, monkeypatch, reads, digests):
    monkeypatch.setattr(pipeline.fingerprint, "SETTLED_NS", -1)  # as if the file had been there for long
    file = tmp_path / "data"
    file.write_bytes(b"one")
    for _ in range(2):
        assert cached_digest(file) == hashlib.sha256(b"one").hexdigest()
    assert len(reads) == 1
    stat = file.stat()
    with file.open("r+b") as stream:  # in place: the inode stays, and so does the size
        stream.write(b"two")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file.stat().st_ino == stat.st_ino and file.stat().st_mtime_ns == stat.st_mtime_ns
    assert cached_digest(file) == hashlib.sha256(b"two").hexdigest()


def test_recently_changed_files_are_not_cached(tmp_path, reads, digests):
    file = tmp_path / "data"
    file.write_bytes(b"one")
    for _ in range(2):
        cached_digest(file)
    assert len(reads) == 2 and not digests.exists()


@pytest.mark.parametrize("content", ["{broken", "[]", "{}", "3", "null"])
def test_a_damaged_cache_is_ignored(tmp_path, monkeypatch, digests, content):
    monkeypatch.setattr(pipeline.fingerprint, "SETTLED_NS", -1)
    file = tmp_path / "data"
    file.write_bytes(b"one")
    cached_digest(file)
    (cached,) = digests.iterdir()
    cached.write_text(content)
    assert cached_digest(file) == hashlib.sha256(b"one").hexdigest()
