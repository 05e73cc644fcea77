import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.errors import StoreError
from pipeline.store.attempt import attempt
from pipeline.store.store import MANIFEST, Key, Store
from tests.pipeline.artifacts import commit, manifest_of

KEY = Key("of_another_version", "ab" * 32)  # whose files nobody here knows
KNOWN = {
    "config": {"tokenize": {"seq_length": 8}}, "inputs": {"fetch": "cd" * 32}, "versions": {"numpy": "1"},
    "seed": 0, "started": 1.0, "ended": 2.0, "host": "here", "peak_memory_gib": 0.1,
}  # fmt: skip
NO_MANIFESTS = ("", '{"files": {"x": 1}}', "[" * 100_000, "{", "[]", "{}", "\0" * 100)


def committed(store, text="content"):
    return commit(store, KEY, {"sub/file": text}, **KNOWN)


def test_commit_creates_a_complete_artifact(tmp_path):
    store = Store(tmp_path)
    assert store.problem(KEY) == "never run"
    path = committed(store)
    assert path == tmp_path / KEY.stage / KEY.fingerprint[:16]
    assert store.problem(KEY) is None
    manifest = store.manifest(KEY)
    digest = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"  # printf content | sha256sum
    assert manifest.files == {"sub/file": {"size": 7, "sha256": digest}}
    assert replace(manifest, files={}) == manifest_of(KEY, **KNOWN)
    assert (path / "sub" / "file").stat().st_mode & 0o777 == 0o444
    assert not store.work_dir(KEY).exists()


@pytest.mark.parametrize(
    ("damage", "shown"),
    [
        (lambda path: (path / "sub" / "file").unlink(), "output missing: sub/file"),
        (lambda path: os.truncate(path / "sub" / "file", 3), "output corrupt: sub/file has 3 bytes"),
        (lambda path: (path / MANIFEST).unlink(), "manifest missing"),
        *((lambda path, text=text: rewrite(path, text), "manifest corrupt") for text in NO_MANIFESTS),
        (lambda path: change(path, files={}), "manifest corrupt"),
        (lambda path: change(path, fingerprint="00" * 32), "manifest corrupt"),
        (lambda path: change(path, files={"../../x": {"size": 1, "sha256": ""}}), "manifest corrupt"),
    ],
)
def test_damage_is_detected_and_replaced_by_a_rebuild(tmp_path, damage, shown):
    store = Store(tmp_path)
    path = committed(store)
    for file in path.rglob("*"):
        file.chmod(0o755)
    damage(path)
    assert str(store.problem(KEY)).startswith(shown)
    committed(store)
    assert store.problem(KEY) is None
    assert len(list((tmp_path / ".quarantine").iterdir())) == 1


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EBADF])
@pytest.mark.parametrize("name", [MANIFEST, "file"])
def test_unreadable_file_is_not_damaged(tmp_path, monkeypatch, name, number):
    store = Store(tmp_path)
    committed(store)

    def refuse(path, *more):
        if Path(path).name == name:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, *more)

    real = os.open
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        looks = (store.problem, lambda key: store.problem(key, deep=True), store.quarantine_damaged)
        for look in looks:
            with pytest.raises(StoreError, match=f"{name}: {os.strerror(number)}; "):
                look(KEY)
    assert store.problem(KEY, deep=True) is None


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


def rewrite(path, text):
    (path / MANIFEST).write_text(text)


def change(path, **values):
    rewrite(path, json.dumps({**json.loads((path / MANIFEST).read_text()), **values}))


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
