import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipeline.store import MANIFEST, Key, Manifest, Store
from pipeline.verify import quarantine, verify

KEY = Key("split", "ab" * 32)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path)
    manifest = Manifest(
        KEY.stage,
        KEY.fingerprint,
        1,
        {},
        {},
        {},
        {},
        None,
        None,
        started=0,
        ended=1,
        host="",
        peak_memory_gib=0,
    )
    with store.lock(KEY):
        staging = store.stage(KEY)
        save_file({"weight": np.arange(64, dtype=np.float32)}, staging / "model.safetensors")
        (staging / "notes").write_text("some text")
        store.commit(staging, manifest)
    for file in store.path(KEY).iterdir():
        file.chmod(0o644)
    return store


def problems(store: Store, deep: bool) -> list[str]:
    return [finding.problem for finding in verify(store, deep)]


def flip(file: Path, offset: int) -> None:
    with file.open("r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)
        stream.seek(offset)
        stream.write(bytes([byte[0] ^ 1]))


def test_a_healthy_store_is_clean(store: Store) -> None:
    assert problems(store, deep=True) == []
    assert problems(Store(store.root / "absent"), deep=True) == []


def test_a_flipped_bit_is_found_by_digest_only(store: Store) -> None:
    flip(store.path(KEY) / "notes", 3)
    assert problems(store, deep=False) == []
    assert problems(store, deep=True)[0].startswith("output corrupt: notes has sha256")


def test_a_broken_safetensors_header_is_found_without_digests(store: Store) -> None:
    flip(store.path(KEY) / "model.safetensors", 0)
    assert "model.safetensors" in problems(store, deep=False)[0]


def test_a_truncated_file_is_found(store: Store) -> None:
    os.truncate(store.path(KEY) / "notes", 2)
    assert problems(store, deep=False) == ["output corrupt: notes has 2 bytes, committed with 9"]


def test_a_file_that_nobody_committed_is_found(store: Store) -> None:
    (store.path(KEY) / "extra").write_text("")
    assert problems(store, deep=False) == ["unlisted file: extra"]


def test_an_artifact_under_another_name_is_found(store: Store) -> None:
    store.path(KEY).rename(store.path(KEY).with_name("cd" * 8))
    assert problems(store, deep=False)[0].startswith("manifest corrupt")


def test_a_missing_manifest_is_found(store: Store) -> None:
    (store.path(KEY) / MANIFEST).unlink()
    assert problems(store, deep=False)[0].startswith("manifest missing")


def test_repair_moves_the_damaged_artifact_away(store: Store) -> None:
    os.truncate(store.path(KEY) / "notes", 2)
    (finding,) = verify(store, deep=False)
    moved = quarantine(store, finding)
    assert moved is not None and (moved / "notes").exists()
    assert store.problem(KEY) == "never run"
    assert problems(store, deep=True) == []
