"""verify: damaged artifacts and checkpoints, and its JSON."""

import errno
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from pipeline.cli import main
from pipeline.config.load import load
from pipeline.plan.graph import plan
from pipeline.store import history
from pipeline.store.attempt import attempt
from pipeline.store.store import MANIFEST, Key, Store
from pipeline.store.verify import quarantine, verify
from stages.base.files import file_digest
from tests.pipeline.artifacts import commit, commit_spec

KEY = Key("split", "ab" * 32)
WEIGHTS = save({"weight": np.arange(2**15, dtype=np.float32)})


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path)
    commit(store, KEY, {"model.safetensors": WEIGHTS, "notes": "some text"})
    for file in store.path(KEY).iterdir():
        file.chmod(0o644)
    return store


def problems(store, deep=False):
    return [finding.problem for finding in verify(store, deep)]


def flip(file, offset):
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)


def test_only_deep_verify_detects_a_flipped_bit_of_a_large_file(store):
    flip(store.path(KEY) / "model.safetensors", 2**16)
    assert problems(store) == []
    assert problems(store, deep=True)[0].startswith("output corrupt: model.safetensors has sha256")


@pytest.mark.parametrize(
    ("damage", "shown"),
    [
        (lambda path: flip(path / "notes", 3), "output corrupt: notes has sha256"),
        (lambda path: os.truncate(path / "notes", 2), "output corrupt: notes has 2 bytes, committed with 9"),
        (lambda path: (path / "extra").write_text(""), "unlisted file: extra"),
        (lambda path: path.rename(path.with_name("cd" * 8)), "manifest corrupt"),
        (lambda path: (path / MANIFEST).unlink(), "manifest missing"),
    ],
)
def test_shallow_verify_detects_damage(store, damage, shown):
    damage(store.path(KEY))
    assert shown in problems(store)[0]


@pytest.mark.parametrize("name", [MANIFEST, "notes"])
def test_an_unreadable_artifact_is_reported_and_not_moved(store, name, monkeypatch, capsys):
    """An artifact may belong to another user of the group."""

    def refuse(path, *more, **options):
        if Path(path).name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *more, **options)

    real = os.open
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        assert main(["verify", "--repair", f"store={store.root}"]) == 1
    assert f"{name}: Permission denied" in capsys.readouterr().out
    assert problems(store, deep=True) == []


def checkpoint(slot, step):
    """Write a checkpoint like the trainer's; return its weights."""
    path = slot / "checkpoints" / f"step_{step:06d}"
    weights = path / "weights" / "rank_0" / "model.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(WEIGHTS)
    entry = {"bytes": len(WEIGHTS), "sha256": hashlib.sha256(WEIGHTS).hexdigest()}
    files = {weights.relative_to(path).as_posix(): entry}
    (path / "state.json").write_text(json.dumps({"step": step, "files": files}))
    return weights


def test_damaged_checkpoints_are_quarantined(store):
    key = Key("grpo", "cd" * 32)
    with attempt(store, key) as slot:
        first, second = checkpoint(slot.work, 1), checkpoint(slot.work, 2)
        flip(second, 2**16)
        assert problems(store, deep=True) == []  # its trainer lives, and writes there
    assert problems(store) == []
    (finding,) = verify(store, deep=True)
    assert finding.path == second.parents[2]
    assert finding.problem.startswith("checkpoint damaged: weights/rank_0/model.safetensors has sha256")
    moved = quarantine(store, finding)
    assert moved is not None and moved.name.startswith(f"{key.flat}-step_000002-")
    assert problems(store, deep=True) == []
    os.truncate(first, 50)
    assert problems(store)[0].startswith("checkpoint damaged: weights/rank_0/model.safetensors")


def test_json_of_verify_and_gc_names_damage_and_garbage(tmp_path, capsys):
    artifacts = Store(tmp_path)
    for number in range(2):
        spec = plan(load([f"seed={number}"]), file_digest).spec("fetch_dataset")
        commit_spec(artifacts, spec, {"file": "x"})
        started = {"overrides": [], "config": {}, "artifacts": {"fetch_dataset": str(spec.key)}}
        history.record(tmp_path, f"run{number}", "started", **started)
    damaged, garbage = sorted(tmp_path.glob("fetch_dataset/*"))

    def printed(*words, code=0):
        assert main([*words, "--json", f"store={tmp_path}"]) == code
        return dict(json.loads(capsys.readouterr().out))

    (damaged / "file").write_text("longer")
    assert [finding["path"] for finding in printed("verify", code=1)["damaged"]] == [str(damaged)]
    repaired = printed("verify", "--repair")["damaged"]
    assert Path(repaired[0]["moved_to"]).is_dir() and printed("verify")["damaged"] == []
    listed = printed("gc", "--keep", "0", "--delete")["garbage"]
    assert str(garbage) in [item["path"] for item in listed] and not garbage.exists()
