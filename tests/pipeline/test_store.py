"""Artifacts and checkpoints: commit, damage that plan and verify detect, and files that cannot be read."""

import errno
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
from pipeline.store.store import MANIFEST, Key
from pipeline.store.verify import quarantine, verify
from tests.pipeline.artifacts import commit, complete, flip, manifest_of, write_checkpoint

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


def test_commit_creates_a_complete_artifact(store, tmp_path):
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


NO_MANIFESTS = ("", '{"files": {"x": 1}}', "[" * 100_000, "{", "[]", "{}", "\0" * 100)
DAMAGE = [
    (lambda path: (path / "sub" / "file").unlink(), "output missing: sub/file", "all"),
    (lambda path: os.truncate(path / "sub/file", 3), "output corrupt: sub/file has 3 bytes", "all"),
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
def test_damage_is_detected_and_replaced_by_a_rebuild(store, damage, shown, seen_by):
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
    assert len(list((store.root / ".quarantine").iterdir())) == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EBADF])
@pytest.mark.parametrize("name", [MANIFEST, "file"])
def test_an_unreadable_file_is_reported_and_not_damaged(store, monkeypatch, name, number, capsys):
    """An artifact may belong to another user of the group."""
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
        assert main(["verify", "--repair", f"store={store.root}"]) == 1
    assert f"{name}: {os.strerror(number)}" in capsys.readouterr().out
    assert list(verify(store, deep=True)) == []


def test_two_attempts_without_the_artifacts_lock_share_no_files_and_the_first_commit_counts(store):
    """Locks of some network file systems exclude nobody."""
    with attempt(store, KEY) as first, attempt(store, KEY) as second:
        assert not {first.work, first.logs, first.staging} & {second.work, second.logs, second.staging}
        for slot in (first, second):
            (slot.staging / "file").write_text(slot.work.name)
        path = store.commit(first.staging, manifest_of(KEY))
        assert store.commit(second.staging, manifest_of(KEY)) == path
        assert (path / "file").read_text() == first.work.name
    assert store.problem(KEY, deep=True) is None
    assert not list(path.parent.glob(".building-*")) and not (store.root / ".quarantine").exists()


def test_links_are_digested_by_their_target(store, tmp_path):
    source = tmp_path / "weights"
    source.write_text("content")
    commit(store, KEY, {"weights": source})
    assert store.manifest(KEY).files["weights"]["link"] == str(source)
    assert source.stat().st_mode & 0o200  # the user's file is left as it was
    source.unlink()
    assert store.problem(KEY) == "output missing: weights"


def test_manifest_name_is_reserved(store):
    with pytest.raises(StoreError, match="reserved"):
        commit(store, KEY, {MANIFEST: "{}"})


def test_damaged_checkpoints_are_quarantined(store):
    key = Key("grpo", "cd" * 32)
    with attempt(store, key) as slot:
        paths = (slot.work / "checkpoints" / f"step_{step:06d}" for step in (1, 2))
        first, second = (write_checkpoint(path, 1, WEIGHTS, "weights") for path in paths)
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


def test_json_of_verify_and_gc_names_damage_and_garbage(tmp_path, printed):
    store = f"store={tmp_path}"
    for number in range(2):
        files = {"fetch_dataset": {"file": "x"}}
        planned, _ = complete([store, f"seed={number}"], "fetch_dataset", files=files)
        artifacts = {"fetch_dataset": str(planned.spec("fetch_dataset").key)}
        history.record(tmp_path, f"run{number}", "started", overrides=[], config={}, artifacts=artifacts)
    damaged, garbage = sorted(tmp_path.glob("fetch_dataset/*"))
    (damaged / "file").write_text("longer")
    assert [finding["path"] for finding in printed("verify", store, code=1)["damaged"]] == [str(damaged)]
    repaired = printed("verify", "--repair", store)["damaged"]
    assert Path(repaired[0]["moved_to"]).is_dir() and printed("verify", store)["damaged"] == []
    listed = printed("gc", "--keep", "0", "--delete", store)["garbage"]
    assert str(garbage) in [item["path"] for item in listed] and not garbage.exists()
