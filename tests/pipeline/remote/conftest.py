"""A remote of each kind, and stores to push from and pull into."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.store.remote import remote
from pipeline.store.remote.copies import find
from pipeline.store.remote.remote import Remote
from pipeline.store.store import MANIFEST, Key, Store
from tests.pipeline.artifacts import commit
from tests.pipeline.remote import servers

KEY = Key("convert", "ab" * 32)
LARGE = 300_000


@dataclass
class Team:
    """Two people with a store each, and their remote."""

    remote: Remote
    first: Store
    second: Store

    @property
    def root(self):
        """The directory of a remote with file://."""
        return Path(self.remote.url.removeprefix("file://"))

    def copies(self, key=KEY):
        """The copies of an artifact; none may be refused."""
        refused = []
        copies = find(self.remote, [key], refused.append)[key]
        assert not refused
        return copies


@pytest.fixture(autouse=True)
def _credentials(monkeypatch):
    """Credentials of the servers; no pause before a request is repeated."""
    monkeypatch.setattr(remote, "PAUSE_S", 0.0)
    for name, value in servers.CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def moto():
    with servers.moto() as address:
        yield address


@pytest.fixture
def file_team(tmp_path):
    return team_at(f"file://{tmp_path}/remote", tmp_path)


@pytest.fixture(params=["file", "moto", "rclone", "sftp"])
def team(request, tmp_path, monkeypatch, moto):
    """The same on each kind of server."""
    url = f"s3://{servers.BUCKET}/{tmp_path.name}"
    if request.param == "file":
        yield team_at(f"file://{tmp_path}/remote", tmp_path)
    elif request.param == "moto":
        yield team_at(url, tmp_path, moto)
    elif request.param == "rclone":
        (tmp_path / "served").mkdir()
        with servers.rclone(tmp_path / "served") as address:
            monkeypatch.setenv("AWS_ENDPOINT_URL", address)  # for other processes
            yield team_at(url, tmp_path, address)
    else:
        with servers.sshd(tmp_path) as (host, home):
            monkeypatch.setenv("HOME", str(home))
            yield team_at(f"sftp://{host}{tmp_path}/remote", tmp_path)


def team_at(url, directory, endpoint=None):
    stores = [Store(directory / name) for name in ("mine", "theirs")]
    for store in stores:
        store.open()
    return Team(Remote(url, endpoint, timeout_s=20.0), *stores)


def some_artifact(store, key=KEY):
    """Files of several sizes, an empty one, directories, unusual names."""
    unusual = "deep/er/file with spaces ünd umlauts"
    many = {f"many/{n}": os.urandom(n) for n in range(1, 9)}
    return commit(store, key, {"large.bin": os.urandom(LARGE), "empty": b"", unusual: b"x" * 1000, **many})


def edit_manifest(root, edit, rename=True):
    """Change the only manifest below `root`, and name its directory after its digest, as a person could."""
    (file,) = root.rglob(MANIFEST)
    values = json.loads(file.read_bytes())
    edit(values)
    file.write_text(json.dumps(values))
    if rename:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:8]
        file.parent.rename(file.parent.with_name(f"{file.parent.name[:-8]}{digest}"))


def contents(directory):
    return {str(f.relative_to(directory)): f.read_bytes() for f in directory.rglob("*") if f.is_file()}
