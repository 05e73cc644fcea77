"""gc --remote, verify --remote and runs --remote: what they remove, find and tell."""

import os
import re
from pathlib import Path

import pytest

from pipeline.cli import main
from pipeline.errors import RemoteError
from pipeline.store import history
from pipeline.store.remote import records, upkeep
from pipeline.store.remote.copies import CONDEMNED, WHOLE, find
from pipeline.store.remote.place import Place
from pipeline.store.remote.pull import pull
from pipeline.store.remote.push import is_there, push
from pipeline.store.store import Key
from tests.pipeline.artifacts import commit
from tests.pipeline.remote.conftest import KEY, some_artifact

OTHER = Key("convert", "cd" * 32)
HOUR = 3600.0


def root(team):
    return Path(team.place.url.removeprefix("file://"))


def age(team, hours):
    """As if all that is there were so much older."""
    for file in root(team).rglob("*"):
        when = file.stat().st_mtime - hours * HOUR
        os.utime(file, (when, when))


def ran(team, *keys, end="finished"):
    """A run of mine that made these artifacts, on the remote with them."""
    run = history.new_run_id()
    made = {key.stage: str(key) for key in keys}
    history.record(team.mine.root, run, "started", overrides=[], config={}, artifacts=made)
    if end is not None:
        history.record(team.mine.root, run, end, result={})
    for key in keys:
        commit(team.mine, key, {"content": os.urandom(100)})
        push(team.place, team.mine, key)
    records.publish(team.place, team.mine, run)
    return run


def collected(team, keep=1, grace=24 * HOUR):
    return upkeep.collect(team.place, keep, grace, delete=True)


def test_what_no_kept_run_needs_is_condemned_first_and_removed_later(file_team):
    ran(file_team, KEY)
    age(file_team, 1)
    ran(file_team, OTHER)
    assert not collected(file_team)  # too young
    age(file_team, 24)
    assert not upkeep.collect(file_team.place, 1, 24 * HOUR, delete=False)[0].goes
    assert find(file_team.place, KEY) and is_there(file_team.place, KEY)  # only listed
    (item,) = collected(file_team)
    assert not item.goes and not is_there(file_team.place, KEY)
    assert pull(file_team.place, file_team.theirs, KEY)  # who needs it meanwhile gets it
    assert not collected(file_team)[0].goes
    age(file_team, 25)
    (item,) = collected(file_team)
    assert item.goes and not find(file_team.place, KEY) and is_there(file_team.place, OTHER)
    assert not (root(file_team) / "artifacts/convert" / KEY.fingerprint).exists()
    assert not collected(file_team)


@pytest.mark.parametrize("why", ["pinned here", "pinned there", "named", "recent", "lives", "unknown"])
def test_what_somebody_needs_stays(why, file_team):
    run = ran(file_team, KEY, end=None if why == "lives" else "finished")
    if why == "pinned here":
        history.record(file_team.mine.root, run, "pinned")
        records.publish(file_team.place, file_team.mine, run)
    elif why == "pinned there":
        records.add(file_team.place, run, "pinned")
    elif why == "named":
        records.add(file_team.place, run, "named", name="baseline")
    elif why == "unknown":  # pushed by its fingerprint, by somebody who keeps his runs to himself
        (root(file_team) / f"runs/{run}.jsonl").unlink()
    ran(file_team, OTHER)
    age(file_team, 100)
    assert not collected(file_team, keep=2 if why == "recent" else 1)
    assert is_there(file_team.place, KEY)


def test_what_became_needed_after_it_was_condemned_stays(file_team):
    run = ran(file_team, KEY)
    age(file_team, 1)
    ran(file_team, OTHER)
    age(file_team, 100)
    assert [item.goes for item in collected(file_team)] == [False]
    records.add(file_team.place, run, "pinned")
    age(file_team, 100)
    assert not collected(file_team) and find(file_team.place, KEY)
    assert push(file_team.place, file_team.mine, KEY) > 0  # another copy, beside the condemned one
    assert is_there(file_team.place, KEY) and len(find(file_team.place, KEY)) == 2
    assert [item.goes for item in collected(file_team)] == [True]
    assert len(find(file_team.place, KEY)) == 1 and is_there(file_team.place, KEY)


def test_what_is_being_pushed_stays_and_what_was_left_goes(file_team, monkeypatch):
    ran(file_team, OTHER)
    some_artifact(file_team.mine)
    real = Place.put

    def killed(place, path, content):
        if path.endswith(WHOLE):
            raise KeyboardInterrupt
        real(place, path, content)

    with monkeypatch.context() as broken:
        broken.setattr(Place, "put", killed)
        with pytest.raises(KeyboardInterrupt):
            push(file_team.place, file_team.mine, KEY)
    assert not collected(file_team)
    age(file_team, 25)
    (item,) = collected(file_team)
    assert item.why == "unfinished" and not item.goes
    assert push(file_team.place, file_team.mine, KEY) > 0  # while the old one waits to be removed
    age(file_team, 25)
    assert [item.goes for item in collected(file_team)] == [True]
    assert is_there(file_team.place, KEY) and pull(file_team.place, file_team.theirs, KEY)


def test_a_push_that_meets_a_condemnation_makes_another_copy(file_team, monkeypatch):
    """gc condemns between the push's first look and the parts that it would have relied on."""
    some_artifact(file_team.mine)
    push(file_team.place, file_team.mine, KEY)
    (copy,) = find(file_team.place, KEY)
    (
        root(file_team) / f"{copy.path}{WHOLE}"
    ).unlink()  # as a push that was killed at the last moment leaves it
    real = Place.put

    def crossed(place, path, content):
        if path == f"{copy.path}/pushing":
            upkeep.condemn(file_team.place, copy.path)
        real(place, path, content)

    monkeypatch.setattr(Place, "put", crossed)
    push(file_team.place, file_team.mine, KEY)
    age(file_team, 25)
    monkeypatch.setattr(Place, "put", real)
    ran(file_team, OTHER)
    collected(file_team)
    (other,) = find(file_team.place, KEY)
    assert other.path == f"{copy.path}-1"
    assert pull(file_team.place, file_team.theirs, KEY)


def test_without_records_nothing_is_removed(file_team):
    some_artifact(file_team.mine)
    push(file_team.place, file_team.mine, KEY)
    age(file_team, 100)
    with pytest.raises(RemoteError, match="no run is recorded there"):
        collected(file_team)
    assert is_there(file_team.place, KEY)


def test_ages_are_told_by_the_remotes_clock(file_team, monkeypatch):
    ran(file_team, KEY)
    ran(file_team, OTHER)
    monkeypatch.setattr("time.time", lambda: 4e9)  # years ahead
    assert not collected(file_team)


DAMAGES = {
    "a part that is gone": ("part", None, "is missing"),
    "a part that is shorter": ("part", b"x", "is 1 bytes long"),
    "a manifest that is none": ("manifest", b"{", "is no manifest"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_verify_finds_damage_and_repair_makes_room(name, file_team, capsys):
    which, content, reason = DAMAGES[name]
    some_artifact(file_team.mine)
    push(file_team.place, file_team.mine, KEY)
    (copy,) = find(file_team.place, KEY)
    where = [f"remote={file_team.place.url}", f"store={file_team.mine.root}"]
    assert main(["verify", "--remote", "--deep", *where]) == 0
    file = root(file_team) / (f"{copy.path}/00000001" if which == "part" else copy.path + WHOLE)
    file.unlink() if content is None else file.write_bytes(content)
    assert main(["verify", "--remote", *where]) == 1
    told = capsys.readouterr().out
    assert reason in told and told.endswith("1 copies checked, 1 damaged\n")
    assert main(["verify", "--remote", "--repair", *where]) == 0
    assert (root(file_team) / (copy.path + CONDEMNED)).exists()
    assert main(["push", KEY.fingerprint, *where]) == 0 and is_there(file_team.place, KEY)
    assert pull(file_team.place, file_team.theirs, KEY)


def test_verify_deep_reads_every_byte(file_team, capsys):
    some_artifact(file_team.mine)
    push(file_team.place, file_team.mine, KEY)
    part = next(root(file_team).rglob("00000001"))
    content = bytearray(part.read_bytes())
    content[-1] ^= 1
    part.write_bytes(content)
    where = [f"remote={file_team.place.url}", f"store={file_team.mine.root}"]
    assert main(["verify", "--remote", *where]) == 0
    assert main(["verify", "--remote", "--deep", *where]) == 1
    assert "is not what the manifest says" in capsys.readouterr().out


def test_runs_of_everybody(file_team, capsys):
    first = ran(file_team, KEY)
    where = [f"remote={file_team.place.url}", f"store={file_team.theirs.root}"]
    theirs = history.new_run_id()
    history.record(file_team.theirs.root, theirs, "started", overrides=["seed=9"], config={}, artifacts={})
    records.publish(file_team.place, file_team.theirs, theirs)
    assert (
        main(["runs", "--remote", "--pin", first[:13] + first[13:], "--name", f"{theirs}=ours", *where]) == 0
    )
    told = capsys.readouterr().out
    assert re.search(rf"{first}.*pinned", told) and re.search(rf"{theirs}.*seed=9.*ours", told)
    assert main(["gc", "--remote", *where]) == 0
    assert history.runs(file_team.mine.root)[first].pinned is False  # their store is not ours to write


def test_a_history_that_was_lost_here_is_not_lost_there(file_team):
    run = ran(file_team, KEY)
    lines = (file_team.mine.root / history.FILE).read_text().splitlines()
    (file_team.mine.root / history.FILE).write_text(lines[0] + "\n")
    records.publish(file_team.place, file_team.mine, run)
    assert records.runs(file_team.place)[run].state == "finished"


def test_an_object_tells_of_its_own_run_only(file_team):
    run = ran(file_team, KEY)
    line = (
        (root(file_team) / f"runs/{run}.jsonl")
        .read_text()
        .splitlines()[0]
        .replace(run, "20260101-000000-dead")
    )
    with (root(file_team) / f"runs/{run}.jsonl").open("a") as file:
        file.write(line + "\n{}\nno json\n")
    assert list(records.runs(file_team.place)) == [run]
