"""Artifacts and checkpoints: commit, damage that plan and verify detect, and files that cannot be read."""

import errno
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save

from pipeline.cli import main
from pipeline.errors import StoreError
from pipeline.store import history
from pipeline.store.attempt import attempt
from pipeline.store.store import MANIFEST, Key, Store
from pipeline.store.verify import quarantine, verify
from tests.pipeline.artifacts import commit, complete, manifest_of

KEY = Key("of_another_version", "ab" * 32)  # whose files nobody here knows
KNOWN = {
    "config": {"tokenize": {"seq_length": 8}}, "inputs": {"fetch": "cd" * 32}, "versions": {"numpy": "1"},
    "seed": 0, "started": 1.0, "ended": 2.0, "host": "here", "peak_memory_gib": 0.1,
}  # fmt: skip
WEIGHTS = save({"weight": np.arange(2**15, dtype=np.float32)})


def committed(store):
    """Commit a small and a large file, which tests may change."""
    path = commit(store, KEY, {"sub/file": "content", "weights.safetensors": WEIGHTS}, **KNOWN)
    assert (path / "sub" / "file").stat().st_mode & 0o777 == 0o444
    for file in path.rglob("*"):
        file.chmod(0o755)
    return path


def test_commit_creates_a_complete_artifact(tmp_path):
    store = Store(tmp_path)
    assert store.problem(KEY) == "never run"
    assert committed(store) == tmp_path / KEY.stage / KEY.fingerprint[:16]
    assert store.problem(KEY) is None
    manifest = store.manifest(KEY)
    digest = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"  # printf content | sha256sum
    assert manifest.files["sub/file"] == {"size": 7, "sha256": digest} and len(manifest.files) == 2
    assert replace(manifest, files={}) == manifest_of(KEY, **KNOWN)
    assert not store.work_dir(KEY).exists()


def rewrite(path, text):
    (path / MANIFEST).write_text(text)


def change(path, **values):
    rewrite(path, json.dumps({**json.loads((path / MANIFEST).read_text()), **values}))


def flip(file, offset):
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)


NO_MANIFESTS = ("", '{"files": {"x": 1}}', "[" * 100_000, "{", "[]", "{}", "\0" * 100)
DAMAGE = [
    (lambda path: (path / "sub" / "file").unlink(), "output missing: sub/file", "all"),
    (
        lambda path: os.truncate(path / "sub/file", 3),
        "output corrupt: sub/file has 3 bytes",
        "all",
    ),
    (lambda path: flip(path / "sub/file", 3), "output corrupt: sub/file has sha256", "all"),
    (lambda path: (path / MANIFEST).unlink(), "manifest missing", "all"),
    *((lambda path, text=text: rewrite(path, text), "manifest corrupt", "all") for text in NO_MANIFESTS),
    (lambda path: change(path, files={}), "manifest corrupt", "all"),
    (lambda path: change(path, fingerprint="00" * 32), "manifest corrupt", "all"),
    (lambda path: change(path, files={"../../x": {"size": 1, "sha256": ""}}), "manifest corrupt", "all"),
    (lambda path: (path / "extra").write_text(""), "unlisted file: extra", "verify"),
    (lambda path: path.rename(path.with_name("cd" * 8)), "manifest corrupt", "verify"),
    (lambda path: flip(path / "weights.safetensors", 2**16), "output corrupt: weights.saf", "verify --deep"),
]


@pytest.mark.parametrize(("damage", "shown", "seen_by"), DAMAGE)
def test_damage_is_detected_and_replaced_by_a_rebuild(tmp_path, damage, shown, seen_by):
    store = Store(tmp_path)
    damage(committed(store))
    (finding,) = verify(store, deep=True)
    assert finding.problem.startswith(shown)
    assert [*verify(store, deep=False)] == ([] if seen_by == "verify --deep" else [finding])
    if seen_by == "all":
        assert str(store.problem(KEY)).startswith(shown)
    else:
        quarantine(store, finding)
    committed(store)
    assert store.problem(KEY, deep=True) is None
    assert len(list((tmp_path / ".quarantine").iterdir())) == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EBADF])
@pytest.mark.parametrize("name", [MANIFEST, "file"])
def test_an_unreadable_file_is_reported_and_not_damaged(tmp_path, monkeypatch, name, number, capsys):
    """An artifact may belong to another user of the group."""
    store = Store(tmp_path)
    committed(store)

    def refuse(path, *more, **options):
        if Path(path).name == name:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *more, **options)

    real = os.open
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        for look in (store.problem, lambda key: store.problem(key, deep=True), store.quarantine_damaged):
            with pytest.raises(StoreError, match=f"{name}: {os.strerror(number)}; "):
                look(KEY)
        assert main(["verify", "--repair", f"store={tmp_path}"]) == 1
    assert f"{name}: {os.strerror(number)}" in capsys.readouterr().out
    assert list(verify(store, deep=True)) == []


def test_two_attempts_without_the_artifacts_lock_share_no_files_and_the_first_commit_counts(tmp_path):
    """Locks of some network file systems exclude nobody."""
    store = Store(tmp_path)
    with attempt(store, KEY) as first, attempt(store, KEY) as second:
        assert not {first.work, first.logs, first.staging} & {second.work, second.logs, second.staging}
        for slot in (first, second):
            (slot.staging / "file").write_text(slot.work.name)
        path = store.commit(first.staging, manifest_of(KEY))
        assert store.commit(second.staging, manifest_of(KEY)) == path
        assert (path / "file").read_text() == first.work.name
    assert store.problem(KEY, deep=True) is None
    assert not list(path.parent.glob(".building-*")) and not (tmp_path / ".quarantine").exists()


def test_links_are_digested_by_their_target(tmp_path):
    source = tmp_path / "user" / "weights"
    source.parent.mkdir()
    source.write_text("content")
    store = Store(tmp_path / "store")
    with attempt(store, KEY) as slot:
        (slot.staging / "weights").symlink_to(source)
        store.commit(slot.staging, manifest_of(KEY))
    assert store.manifest(KEY).files["weights"]["link"] == str(source)
    assert source.stat().st_mode & 0o200  # the user's file is left as it was
    source.unlink()
    assert store.problem(KEY) == "output missing: weights"


def test_manifest_name_is_reserved(tmp_path):
    with pytest.raises(StoreError, match="reserved"):
        commit(Store(tmp_path), KEY, {MANIFEST: "{}"})


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


def test_damaged_checkpoints_are_quarantined(tmp_path):
    store, key = Store(tmp_path), Key("grpo", "cd" * 32)
    with attempt(store, key) as slot:
        first, second = checkpoint(slot.work, 1), checkpoint(slot.work, 2)
        flip(second, 2**16)
        assert list(verify(store, deep=True)) == []  # its trainer lives, and writes there
    assert list(verify(store, deep=False)) == []
    (finding,) = verify(store, deep=True)
    assert finding.path == second.parents[2]
    assert finding.problem.startswith("checkpoint damaged: weights/rank_0/model.safetensors has sha256")
    moved = quarantine(store, finding)
    assert moved is not None and moved.name.startswith(f"{key.flat}-step_000002-")
    assert list(verify(store, deep=True)) == []
    os.truncate(first, 50)
    (finding,) = verify(store, deep=False)
    assert finding.problem.startswith("checkpoint damaged: weights/rank_0/model.safetensors")


def test_json_of_verify_and_gc_names_damage_and_garbage(tmp_path, capsys):
    for number in range(2):
        overrides = [f"store={tmp_path}", f"seed={number}"]
        planned, _ = complete(overrides, "fetch_dataset", files={"fetch_dataset": {"file": "x"}})
        artifacts = {"fetch_dataset": str(planned.spec("fetch_dataset").key)}
        history.record(tmp_path, f"run{number}", "started", overrides=[], config={}, artifacts=artifacts)
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
