"""Artifacts go to a remote and come back as what they were; everything else is refused."""

import os
from typing import Any

import pytest

from pipeline.errors import Refused, StoreError
from pipeline.store.remote.transfer import download, pull, push
from pipeline.store.store import MANIFEST, Store
from tests.pipeline.artifacts import commit, flip
from tests.pipeline.remote.conftest import KEY, LARGE, contents, edit_manifest, some_artifact


def test_push_and_pull_on_every_kind_of_server(team):
    some_artifact(team.first)
    assert not team.copies() and not pull(team.remote, team.second, KEY)
    assert push(team.remote, team.first, KEY) == team.copies()[0].bytes > LARGE
    assert push(team.remote, team.first, KEY) == 0
    moved: list[int] = []
    assert pull(team.remote, team.second, KEY, moved.append) and not pull(team.remote, team.second, KEY)
    assert sum(moved) == team.copies()[0].bytes
    assert team.second.problem(KEY, deep=True) is None
    assert contents(team.second.path(KEY)) == contents(team.first.path(KEY))
    assert not list(team.second.root.glob(".work/*"))


def test_newest_copy_is_pulled(file_team, tmp_path):
    """`run --force` pushes one more; those that it replaced stay until gc."""
    for number in range(5):
        store = Store(tmp_path / str(number))
        commit(store, KEY, {"file": str(number)}, ended=float(number))
        push(file_team.remote, store, KEY)
    assert pull(file_team.remote, file_team.second, KEY)
    assert (file_team.second.path(KEY) / "file").read_text() == "4"


@pytest.mark.parametrize("leftover", ["flipped", "longer", "link", "shorter", "zeros"])
def test_files_left_by_a_killed_pull_are_checked(leftover, file_team, tmp_path):
    some_artifact(file_team.first)
    push(file_team.remote, file_team.first, KEY)
    directory, artifact = tmp_path / "pulled", contents(file_team.first.path(KEY))
    content = artifact["large.bin"]
    directory.mkdir()
    outside = tmp_path / "outside"
    outside.write_bytes(b"not theirs")
    if leftover == "link":
        (directory / "large.bin").symlink_to(outside)
    else:
        texts = {
            "flipped": bytes([content[0] ^ 1]) + content[1:], "longer": content + b"!",
            "shorter": content[:500], "zeros": b"\0" * len(content),
        }  # fmt: skip
        (directory / "large.bin").write_bytes(texts[leftover])
    (copy,) = file_team.copies()
    download(file_team.remote, copy, directory, copy.manifest.files)
    assert contents(directory) == {name: text for name, text in artifact.items() if name != MANIFEST}
    assert outside.read_bytes() == b"not theirs"


ENTRY = {"size": 3, "sha256": "0" * 64}
REFUSED: dict[str, tuple[Any, str]] = {
    "another fingerprint": (lambda m: m.update(fingerprint="cd" * 32), "claims to be"),
    "another stage": (lambda m: m.update(stage="split"), "claims to be"),
    "another content": (lambda m: m["files"]["large.bin"].update(sha256="0" * 64), "digest"),
    "a name above": (lambda m: m["files"].update({"../x": ENTRY}), "malformed"),
    "an absolute name": (lambda m: m["files"].update({"/etc/x": ENTRY}), "malformed"),
    "a name twice": (lambda m: m["files"].update({"many//1": ENTRY}), "malformed"),
    "the manifest's name": (lambda m: m["files"].update({"manifest.json": ENTRY}), "not allowed"),
    "a name with control characters": (lambda m: m["files"].update({"a\x1b[2J": ENTRY}), "not allowed"),
    "a file that is a directory": (lambda m: m["files"].update({"many": ENTRY}), "below a name"),
    "a file below a file": (lambda m: m["files"].update({"empty/x": ENTRY}), "below a name"),
    "a name that no file system takes": (lambda m: m["files"].update({"x" * 300: ENTRY}), "cannot be a file"),
    "a negative size": (lambda m: m["files"]["large.bin"].update(size=-5), "'size': -5"),
    "a link": (lambda m: m["files"]["large.bin"].update(link="/etc/passwd"), "cannot be a file"),
    "a huge size": (lambda m: m["files"]["empty"].update(size=10**15), "digest"),
    "a file that is absent": (lambda m: m["files"].update({"absent": ENTRY}), "digest|does not exist"),
    "no files": (lambda m: m.update(files={}), "malformed"),
    "another format": (lambda m: m.update(format=99), "malformed"),
    "another type": (lambda m: m.clear(), "malformed"),
}


@pytest.mark.parametrize("rename", [False, True])
@pytest.mark.parametrize("name", REFUSED)
def test_malicious_manifests_are_refused(name, rename, file_team, tmp_path):
    some_artifact(file_team.first)
    push(file_team.remote, file_team.first, KEY)
    edit, reason = REFUSED[name]
    edit_manifest(file_team.root, edit, rename)
    before = set(tmp_path.iterdir())
    with pytest.raises(Refused, match=f"(?i){reason}"):
        pull(file_team.remote, file_team.second, KEY)
    assert file_team.second.problem(KEY) == "never run"
    assert set(tmp_path.iterdir()) == before and not (file_team.second.root / "x").exists()


@pytest.mark.parametrize("number", [0, 1])
def test_two_pushers_with_different_bytes_keep_separate_copies(number, file_team):
    """A damaged copy is passed over for the other."""
    for store in (file_team.first, file_team.second):
        commit(store, KEY, {"large.bin": os.urandom(LARGE)}, host=store.root.name)
        assert push(file_team.remote, store, KEY) >= LARGE
    copies = file_team.copies()
    assert len(copies) == 2
    (file_team.root / copies[number].path / "large.bin").write_bytes(bytes(LARGE))
    third = Store(file_team.first.root.with_name("third"))
    third.open()
    assert pull(file_team.remote, third, KEY) and third.problem(KEY, deep=True) is None
    assert third.manifest(KEY) == copies[1 - number].manifest


def test_damaged_artifact_is_not_pushed(file_team):
    flip(some_artifact(file_team.first) / "large.bin", 0)
    with pytest.raises(StoreError, match="not what was committed"):
        push(file_team.remote, file_team.first, KEY)
    assert not file_team.copies()


def test_links_are_pushed_as_files(file_team, tmp_path):
    (tmp_path / "model").write_bytes(b"weights")
    commit(file_team.first, KEY, {"linked": tmp_path / "model"})
    push(file_team.remote, file_team.first, KEY)
    (tmp_path / "model").unlink()
    assert pull(file_team.remote, file_team.second, KEY)
    linked = file_team.second.path(KEY) / "linked"
    assert linked.read_bytes() == b"weights" and not linked.is_symlink()
