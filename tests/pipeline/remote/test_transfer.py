"""Artifacts go to a remote and come back as what they were; whatever else is there is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import RemoteError, StoreError
from pipeline.store.remote import copies
from pipeline.store.remote.copies import find, spans
from pipeline.store.remote.place import Place
from pipeline.store.remote.pull import fill, pull
from pipeline.store.remote.push import is_there, push
from pipeline.store.store import Key, Store
from tests.pipeline.artifacts import commit
from tests.pipeline.remote.conftest import KEY, PART_BYTES, some_artifact


def contents(directory):
    return {
        str(file.relative_to(directory)): file.read_bytes() for file in directory.rglob("*") if file.is_file()
    }


def objects(team):
    return contents(Path(team.place.url.removeprefix("file://")))


def test_there_and_back_on_every_kind_of_server(team):
    some_artifact(team.mine)
    assert not is_there(team.place, KEY) and not pull(team.place, team.theirs, KEY)
    moved: list[int] = []
    assert push(team.place, team.mine, KEY, moved.append) > 3 * PART_BYTES
    assert sum(moved) == find(team.place, KEY)[0].bytes
    assert is_there(team.place, KEY) and push(team.place, team.mine, KEY) == 0
    assert pull(team.place, team.theirs, KEY) and not pull(team.place, team.theirs, KEY)
    assert team.theirs.problem(KEY, deep=True) is None
    assert contents(team.theirs.path(KEY)) == contents(team.mine.path(KEY))
    assert not list(team.theirs.root.glob(".work/*"))


def test_only_what_is_missing_is_sent_again(file_team, monkeypatch):
    some_artifact(file_team.mine)
    real, sent = Place.put, []

    def breaks(place, path, content):
        if path.endswith("00000002"):
            raise RemoteError("cut")
        real(place, path, content)

    monkeypatch.setattr(Place, "put", breaks)
    with pytest.raises(RemoteError, match="cut"):
        push(file_team.place, file_team.mine, KEY)
    assert not find(file_team.place, KEY)

    def listens(place, path, content):
        sent.append(path.rpartition("/")[2])
        real(place, path, content)

    monkeypatch.setattr(Place, "put", listens)
    push(file_team.place, file_team.mine, KEY)
    again = {name for name in sent if name.isdecimal()}
    assert "00000002" in again and not again & {"00000000", "00000001"}


def test_a_pull_goes_on_where_it_was_cut(file_team, monkeypatch):
    some_artifact(file_team.mine)
    push(file_team.place, file_team.mine, KEY)
    real, asked = Place.get, []

    def breaks(place, path, start, end):
        if path.endswith("00000002"):
            raise RemoteError("cut")
        return real(place, path, start, end)

    def listens(place, path, start, end):
        asked.append(path.rpartition("/")[2])
        return real(place, path, start, end)

    monkeypatch.setattr(Place, "get", breaks)
    with pytest.raises(RemoteError, match="cut"):
        pull(file_team.place, file_team.theirs, KEY)
    assert file_team.theirs.problem(KEY) == "never run"
    monkeypatch.setattr(Place, "get", listens)
    assert pull(file_team.place, file_team.theirs, KEY)
    assert "00000002" in asked and not {"00000000", "00000001"} & set(asked)
    assert contents(file_team.theirs.path(KEY)) == contents(file_team.mine.path(KEY))


@pytest.mark.parametrize("left", ["flipped", "longer", "link", "shorter", "zeros"])
def test_what_a_killed_pull_has_left_is_compared_too(left, file_team, tmp_path):
    some_artifact(file_team.mine)
    push(file_team.place, file_team.mine, KEY)
    copy, begun, whole = find(file_team.place, KEY)[0], tmp_path / "begun", contents(file_team.mine.path(KEY))
    content = whole["large.bin"]
    begun.mkdir()
    outside = tmp_path / "outside"
    outside.write_bytes(b"not theirs")
    if left == "link":
        (begun / "large.bin").symlink_to(outside)
    else:
        texts = {
            "flipped": bytes([content[0] ^ 1]) + content[1:], "longer": content + b"!",
            "shorter": content[:500], "zeros": b"\0" * 500,
        }  # fmt: skip
        (begun / "large.bin").write_bytes(texts[left])
    fill(file_team.place, copy, begun)
    assert contents(begun) == {name: text for name, text in whole.items() if name != "manifest.json"}
    assert outside.read_bytes() == b"not theirs"


def edited(team, edit):
    """Somebody who may write there changes the manifest."""
    file = next(Path(team.place.url.removeprefix("file://")).rglob("*.json"))
    values = json.loads(file.read_bytes())
    edit(values)
    file.write_text(json.dumps(values))


ENTRY = {"size": 3, "sha256": "0" * 64}
REFUSED: dict[str, tuple[Any, str]] = {
    "another fingerprint": (lambda m: m.update(fingerprint="cd" * 32), "claims to be"),
    "another stage": (lambda m: m.update(stage="split"), "claims to be"),
    "another content": (
        lambda m: m["files"]["large.bin"].update(sha256="0" * 64),
        "not the manifest that its name tells",
    ),
    "a name above": (lambda m: m["files"].update({"../x": ENTRY}), "is no manifest"),
    "a name above, hidden": (lambda m: m["files"].update({"a/../../x": ENTRY}), "is no manifest"),
    "an absolute name": (lambda m: m["files"].update({"/etc/x": ENTRY}), "is no manifest"),
    "a name twice": (lambda m: m["files"].update({"many//1": ENTRY}), "is called"),
    "no name": (lambda m: m["files"].update({"": ENTRY}), "is called"),
    "the store's own name": (lambda m: m["files"].update({"manifest.json": ENTRY}), "is called"),
    "a name with control characters": (lambda m: m["files"].update({"a\x1b[2J": ENTRY}), "is called"),
    "a file that is a directory": (lambda m: m["files"].update({"many": ENTRY}), "a file and a directory"),
    "a file below a file": (lambda m: m["files"].update({"empty/x": ENTRY}), "a file and a directory"),
    "a name that no file system takes": (lambda m: m["files"].update({"x" * 300: ENTRY}), "has a file xxx"),
    "a negative size": (lambda m: m["files"]["large.bin"].update(size=-5), "of -5 bytes"),
    "a larger size": (lambda m: m["files"]["empty"].update(size=10**15), "not the manifest"),
    "no files": (lambda m: m.update(files={}), "is no manifest"),
    "another format": (lambda m: m.update(format=99), "is no manifest"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_manifest_must_not_say(name, file_team, tmp_path):
    some_artifact(file_team.mine)
    push(file_team.place, file_team.mine, KEY)
    edit, reason = REFUSED[name]
    edited(file_team, edit)
    before = set(tmp_path.iterdir())
    with pytest.raises(StoreError, match=f"(?i){reason}"):
        pull(file_team.place, file_team.theirs, KEY)
    assert file_team.theirs.problem(KEY) == "never run"
    assert set(tmp_path.iterdir()) == before and not (file_team.theirs.root / "x").exists()


def test_a_manifest_that_is_no_json_is_refused(file_team):
    some_artifact(file_team.mine)
    push(file_team.place, file_team.mine, KEY)
    next(Path(file_team.place.url.removeprefix("file://")).rglob("*.json")).write_text('{"stage": ')
    with pytest.raises(RemoteError, match="is no manifest"):
        pull(file_team.place, file_team.theirs, KEY)


def test_a_damaged_copy_is_passed_over_for_a_sound_one(file_team, tmp_path):
    some_artifact(file_team.mine)
    push(file_team.place, file_team.mine, KEY)
    damaged = find(file_team.place, KEY)[0].path
    part = Path(file_team.place.url.removeprefix("file://")) / damaged / "00000000"
    part.write_bytes(b"?" + part.read_bytes()[1:])
    assert push(file_team.place, file_team.mine, KEY) == 0
    assert push(file_team.place, file_team.mine, KEY, refused=[damaged]) > 0
    assert pull(file_team.place, file_team.theirs, KEY)
    assert contents(file_team.theirs.path(KEY)) == contents(file_team.mine.path(KEY))


def test_what_is_damaged_here_does_not_appear_there(file_team):
    path = some_artifact(file_team.mine)
    large = path / "large.bin"
    large.chmod(0o644)
    large.write_bytes(os.urandom(large.stat().st_size))
    with pytest.raises(StoreError, match="not what was committed"):
        push(file_team.place, file_team.mine, KEY)
    assert not find(file_team.place, KEY) and not is_there(file_team.place, KEY)


def test_a_link_is_pushed_as_what_it_leads_to(file_team, tmp_path):
    from pipeline.store.attempt import attempt
    from tests.pipeline.artifacts import manifest_of, required

    (tmp_path / "model").write_bytes(b"weights")
    with attempt(file_team.mine, KEY) as seat:
        for name, content in required(KEY.stage, {}, {}).items():
            (seat.staging / name).write_bytes(content)
        (seat.staging / "linked").symlink_to(tmp_path / "model")
        file_team.mine.commit(seat.staging, manifest_of(KEY))
    push(file_team.place, file_team.mine, KEY)
    (tmp_path / "model").unlink()
    assert pull(file_team.place, file_team.theirs, KEY)
    linked = file_team.theirs.path(KEY) / "linked"
    assert linked.read_bytes() == b"weights" and not linked.is_symlink()


def test_two_that_built_the_same_fingerprint_do_not_disturb_each_other(file_team):
    for store in (file_team.mine, file_team.theirs):
        commit(store, KEY, {"big": os.urandom(PART_BYTES + 1)}, host=store.root.name)
    # the second has looked before the first was done
    original = copies.directory(KEY)
    mine, theirs = (copies.copy_name(copies.published(s, KEY)[0]) for s in (file_team.mine, file_team.theirs))
    assert mine != theirs
    push(file_team.place, file_team.mine, KEY)
    push(file_team.place, file_team.theirs, KEY, refused=[f"{original}/{mine}"])
    third = Store(file_team.mine.root.with_name("third"))
    third.open()
    assert pull(file_team.place, third, KEY) and third.problem(KEY, deep=True) is None
    assert contents(third.path(KEY)) in [contents(s.path(KEY)) for s in (file_team.mine, file_team.theirs)]


def test_spans_cover_what_is_wanted_and_nothing_else():
    part = PART_BYTES
    assert list(spans([(0, 5), (5, 9)])) == [copies.Span(0, 0, 9)]
    assert list(spans([(0, 5), (7, 7), (9, 10)])) == [copies.Span(0, 0, 5), copies.Span(0, 9, 10)]
    assert list(spans([(part - 1, 2 * part + 1)])) == [
        copies.Span(0, part - 1, part), copies.Span(1, 0, part), copies.Span(2, 0, 1),
    ]  # fmt: skip
    assert not list(spans([]))


def test_an_artifact_that_is_not_here_cannot_be_pushed(file_team):
    with pytest.raises(StoreError, match="only what is whole is pushed"):
        push(file_team.place, file_team.mine, Key("convert", "cd" * 32))


def test_other_content_than_the_manifest_says_is_refused(file_team):
    some_artifact(file_team.mine)
    push(file_team.place, file_team.mine, KEY)
    part = next(Path(file_team.place.url.removeprefix("file://")).rglob("00000001"))
    part.write_bytes(bytes(len(part.read_bytes())))
    with pytest.raises(RemoteError, match=r"large\.bin is not what its manifest says; it is refused"):
        pull(file_team.place, file_team.theirs, KEY)
    assert file_team.theirs.problem(KEY) == "never run"
