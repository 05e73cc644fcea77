"""A place of each kind, and stores to push from and pull into."""

from __future__ import annotations

import os
from dataclasses import dataclass

import pytest

from pipeline.store.remote import asking, copies
from pipeline.store.remote.place import Place
from pipeline.store.store import Key, Store
from tests.pipeline.artifacts import commit
from tests.pipeline.remote import servers

KEY = Key("convert", "ab" * 32)
PART_BYTES = 1 << 16


@dataclass
class Team:
    """Two people with a store each, and their remote."""

    place: Place
    mine: Store
    theirs: Store


@pytest.fixture(autouse=True)
def _small_and_quick(monkeypatch):
    """Parts of 64 KiB instead of 8 MiB, and no pause before trying again."""
    monkeypatch.setattr(copies, "PART_BYTES", PART_BYTES)
    monkeypatch.setattr(asking, "PAUSE_S", 0.0)


@pytest.fixture(scope="session")
def moto():
    with servers.moto() as address:
        yield address


@pytest.fixture
def file_team(tmp_path):
    return team_at(f"file://{tmp_path}/remote", tmp_path)


@pytest.fixture(params=["file", "moto", pytest.param("rclone"), "sftp"])
def team(request, tmp_path, monkeypatch, moto):
    """The same on each kind of server."""
    for name, value in servers.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    url = f"s3://{servers.BUCKET}/{tmp_path.name}"
    if request.param == "file":
        yield team_at(f"file://{tmp_path}/remote", tmp_path)
    elif request.param == "moto":
        yield team_at(url, tmp_path, moto)
    elif request.param == "rclone":
        (tmp_path / "served").mkdir()
        with servers.rclone(tmp_path / "served") as address:
            monkeypatch.setenv("AWS_ENDPOINT_URL", address)  # for processes of their own
            yield team_at(url, tmp_path, address)
    else:
        with servers.sshd(tmp_path) as (host, home):
            monkeypatch.setenv("HOME", str(home))
            yield team_at(f"sftp://{host}{tmp_path}/remote", tmp_path)


def team_at(url, directory, endpoint=None):
    stores = [Store(directory / name) for name in ("mine", "theirs")]
    for store in stores:
        store.open()
    return Team(Place(url, endpoint, timeout_s=20.0), *stores)


def some_artifact(store, key=KEY):
    """Files smaller and larger than a part, an empty one, directories, odd names."""
    odd = "deep/er/file with spaces ünd umlauts"
    many = {f"many/{n}": os.urandom(n) for n in range(1, 9)}
    return commit(
        store, key, {"large.bin": os.urandom(3 * PART_BYTES), "empty": b"", odd: b"x" * 1000, **many}
    )
