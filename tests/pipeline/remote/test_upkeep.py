"""gc --remote and runs --remote: what they remove and show."""

import os
import re
import time

import pytest

from pipeline.cli import main
from pipeline.errors import RemoteError
from pipeline.store import history
from pipeline.store.remote import records, upkeep
from pipeline.store.remote.copies import missing
from pipeline.store.remote.remote import Remote
from pipeline.store.remote.transfer import push
from pipeline.store.store import Key
from tests.pipeline.artifacts import commit
from tests.pipeline.remote import servers
from tests.pipeline.remote.conftest import KEY, contents, some_artifact, team_at

NEWER = Key("convert", "cd" * 32)
DAY_S = 86_400.0


def age(team, days):
    """Make all files of the remote older, by its own clock."""
    for file in team.root.rglob("*"):
        when = file.stat().st_mtime - days * DAY_S
        os.utime(file, (when, when))


def ran(team, *keys, end="finished"):
    """Push artifacts of a run, and its record."""
    run = history.new_run_id()
    made = {key.stage: str(key) for key in keys}
    history.record(team.first.root, run, "started", overrides=[], config={}, artifacts=made)
    if end is not None:
        history.record(team.first.root, run, end, result={})
    for key in keys:
        commit(team.first, key, {"content": os.urandom(100)})
        push(team.remote, team.first, key)
    records.publish(team.remote, team.first, run)
    return run


@pytest.fixture
def old_and_new(file_team):
    """A remote with the artifact of a run, and that of the next day's run, both 100 days old."""
    ran(file_team, KEY)
    age(file_team, 1)
    ran(file_team, NEWER)
    age(file_team, 100)
    return file_team


def collected(team, keep=1, grace_days=14):
    return [str(item.path) for item in upkeep.collect(team.remote, keep, grace_days * DAY_S, delete=True)]


def is_there(team, key):
    copies = team.copies(key)
    return bool(copies) and not any(missing(team.remote, copy) for copy in copies)


def test_old_unneeded_artifacts_are_listed_and_removed(old_and_new, printed):
    where = [f"remote={old_and_new.remote.url}", f"store={old_and_new.first.root}", "--keep", "1"]

    def gc(*words):
        return [item["path"] for item in printed("gc", "--remote", *words, *where)["garbage"]]

    assert not gc("--delete", "remote.grace_days=102")
    (path,) = gc("remote.grace_days=100.5")
    assert path.startswith(f"{KEY.stage}/{KEY.fingerprint}-") and is_there(old_and_new, KEY)  # only listed
    assert gc("--delete") == [path]
    assert not (old_and_new.root / path).exists() and is_there(old_and_new, NEWER)
    assert not gc("--delete") and not list((old_and_new.root / ".tmp").iterdir())
    assert main(["gc", "--remote", "remote.grace_days=-1", *where]) == 2


def test_a_url_without_a_remote_is_left_as_it_is(file_team):
    assert collected(file_team) == [] and not file_team.root.exists()


def test_gc_on_s3(moto, tmp_path):
    team = team_at(f"s3://{servers.BUCKET}/{tmp_path.name}", tmp_path, moto)
    ran(team, KEY)
    time.sleep(1.1)  # S3 has whole seconds
    ran(team, NEWER)
    assert not collected(team) and is_there(team, KEY)
    time.sleep(1.1)
    assert len(collected(team, grace_days=0)) == 1
    assert not team.remote.files(f"{KEY.stage}/{KEY.fingerprint}") and is_there(team, NEWER)
    assert not team.copies(KEY) and not team.remote.list(".tmp")


@pytest.mark.parametrize("why", ["pinned here", "pinned there", "named", "recent", "running", "unknown"])
def test_needed_artifacts_are_retained(why, file_team):
    run = ran(file_team, KEY, end=None if why == "running" else "finished")
    if why == "pinned here":
        history.record(file_team.first.root, run, "pinned")
        records.publish(file_team.remote, file_team.first, run)
    elif why == "pinned there":
        records.record(file_team.remote, run, "pinned")
    elif why == "named":
        records.record(file_team.remote, run, "named", name="baseline")
    elif why == "unknown":  # pushed by a person who did not publish the run
        (file_team.root / f"runs/{run}.jsonl").unlink()
    age(file_team, 1)
    ran(file_team, NEWER)
    age(file_team, 12.5 if why == "running" else 100)
    assert not collected(file_team, keep=2 if why == "recent" else 1, grace_days=1)
    assert is_there(file_team, KEY)


@pytest.mark.parametrize("clock_s", [-4e8, 4e8])
def test_only_the_remote_clock_decides(clock_s, file_team, monkeypatch):
    """The newest run is the one recorded last, and ages are the remote's, wherever pushers' clocks are."""
    ran(file_team, KEY)
    age(file_team, 20)
    real = time.time
    monkeypatch.setattr("time.time", lambda: real() + clock_s)
    ran(file_team, NEWER)
    assert len(collected(file_team)) == 1 and is_there(file_team, NEWER) and not is_there(file_team, KEY)


def test_unfinished_pushes_are_removed_after_the_grace_period(file_team, monkeypatch):
    ran(file_team, NEWER)
    some_artifact(file_team.first)

    def killed(remote, path, content):
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(Remote, "write", killed)
        with pytest.raises(KeyboardInterrupt):
            push(file_team.remote, file_team.first, KEY)
    (file_team.root / ".tmp" / "left").write_text("by a killed push")
    assert not collected(file_team)
    age(file_team, 15)
    assert len(collected(file_team)) == 1
    assert not list((file_team.root / ".tmp").iterdir())
    assert push(file_team.remote, file_team.first, KEY) > 0 and is_there(file_team, KEY)


def push_again(team):
    """Push the old artifact."""
    push(Remote(team.remote.url), team.first, KEY)


@pytest.mark.parametrize(
    ("outer", "inner", "number"),
    [(collected, push_again, n) for n in range(12)] + [(push_again, collected, n) for n in range(4)],
)
def test_a_push_and_a_gc_at_the_same_time_leave_no_partial_artifact(
    outer, inner, number, old_and_new, monkeypatch
):
    """Do one before request `number` of the other: the artifact stays, or the next push restores it."""
    requests, real = 0, Remote._retry

    def interleaved(remote, path, request):
        nonlocal requests
        requests += 1
        if requests == number + 1:
            inner(old_and_new)
        return real(remote, path, request)

    with monkeypatch.context() as patched:
        patched.setattr(Remote, "_retry", interleaved)
        outer(old_and_new)
    assert requests > number
    assert is_there(old_and_new, KEY) or (outer is collected and not old_and_new.copies(KEY))
    push_again(old_and_new)
    (copy,) = old_and_new.copies(KEY)
    assert contents(old_and_new.root / copy.path) == contents(old_and_new.first.path(KEY))


def test_gc_without_records_removes_nothing(file_team):
    some_artifact(file_team.first)
    push(file_team.remote, file_team.first, KEY)
    age(file_team, 100)
    with pytest.raises(RemoteError, match="no run is recorded there"):
        collected(file_team)
    assert is_there(file_team, KEY)


def test_runs_of_all_stores(file_team, shown):
    first = ran(file_team, KEY)
    where = [f"remote={file_team.remote.url}", f"store={file_team.second.root}"]
    second = history.new_run_id()
    history.record(file_team.second.root, second, "started", overrides=["seed=9"], config={}, artifacts={})
    records.publish(file_team.remote, file_team.second, second)
    out = shown("runs", "--remote", "--pin", first, "--name", f"{second}=ours", *where).out
    assert re.search(rf"{first}.*pinned", out) and re.search(rf"{second}.*seed=9.*ours", out)
    assert history.runs(file_team.first.root)[first].pinned is False  # another store is not changed


def test_remote_record_contains_only_events_of_its_run(file_team):
    run = ran(file_team, KEY)
    file = file_team.root / f"runs/{run}.jsonl"
    line = file.read_text().splitlines()[0].replace(run, "20260101-000000-dead")
    with file.open("a") as record:
        record.write(line + "\n{}\nno json\n")
    assert list(records.runs(file_team.remote)) == [run]
