import hashlib
import os
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.fingerprint import DigestCache, canonical, file_digest, fingerprint

CONFIG = {"model": {"hidden_size": 128, "path": "/here"}, "seed": 0}


def test_paths_do_not_count_and_values_do() -> None:
    base = fingerprint("fetch", 1, CONFIG, {}, {})
    assert len(base) == 64
    assert (
        fingerprint("fetch", 1, {"seed": 0, "model": {"path": "/there", "hidden_size": 128}}, {}, {}) == base
    )
    changed = [
        fingerprint("fetch", 2, CONFIG, {}, {}),
        fingerprint("convert", 1, CONFIG, {}, {}),
        fingerprint("fetch", 1, {**CONFIG, "seed": 1}, {}, {}),
        fingerprint("fetch", 1, CONFIG, {"fetch": "00"}, {}),
        fingerprint("fetch", 1, CONFIG, {}, {"0:config.json": "00"}),
    ]
    assert len({base, *changed}) == 6


def test_fingerprint_is_the_documented_hash() -> None:
    text = '{"config":{"seed":0},"external":{},"inputs":{},"stage":"fetch","version":1}'
    assert fingerprint("fetch", 1, {"seed": 0}, {}, {}) == hashlib.sha256(text.encode()).hexdigest()


def test_canonical_json_refuses_nan() -> None:
    with pytest.raises(ValueError):
        canonical({"beta": float("nan")})


def test_digests_are_remembered_until_the_file_changes(tmp_path: Path) -> None:
    file, state = tmp_path / "data", tmp_path / "state" / "digests.json"
    file.write_bytes(b"one")
    assert DigestCache(state).digest(file) == file_digest(file) == hashlib.sha256(b"one").hexdigest()
    # Same inode, size and mtime: remembered, even though the content differs ...
    stat = file.stat()
    file.write_bytes(b"two")

    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert DigestCache(state).digest(file) == hashlib.sha256(b"one").hexdigest()
    # ... which a deep look finds.
    assert DigestCache(state).digest(file, deep=True) == hashlib.sha256(b"two").hexdigest()
    file.write_bytes(b"three")
    assert DigestCache(state).digest(file) == hashlib.sha256(b"three").hexdigest()


def test_a_broken_cache_only_costs_time(tmp_path: Path) -> None:
    file, state = tmp_path / "data", tmp_path / "digests.json"
    file.write_bytes(b"one")
    state.write_text("{broken")
    assert DigestCache(state).digest(file) == hashlib.sha256(b"one").hexdigest()


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        DigestCache(tmp_path / "state").digest(tmp_path / "absent")
