"""Faults between a client and an S3 server: passing ones are overcome, lasting ones reported."""

import errno
import os
import shutil
import threading
from types import SimpleNamespace

import pytest

from pipeline.errors import RemoteError, StoreError
from pipeline.store.remote import remote
from pipeline.store.remote.remote import MIN_BYTES_PER_S, Remote
from pipeline.store.remote.transfer import pull, push
from tests.pipeline.remote import servers
from tests.pipeline.remote.conftest import KEY, contents, some_artifact, team_at
from tests.pipeline.remote.proxy import Fault, proxy

ALWAYS = 10**6
FAULTS: dict[str, tuple[int | None, str | None]] = {
    "an answer that is cut": (2, "."),
    "a request that is cut": (2, "."),
    "a body that is shorter than it says": (1, "."),
    "500": (2, "InternalError|500"),
    "503": (2, None),
    "wrong bytes": (1, "refused"),
    "an answer that does not come": (1, "."),
    "an answer drop by drop": (1, "."),
    "expired credentials": (None, "ExpiredToken"),
    "a clock that is wrong": (None, "Skewed|clock"),
    "no such key": (None, "Access|403"),
}
"""Fault: spoiled tries of each request before one succeeds, and what is reported if none does."""
SENT_UNCHANGED = ("wrong bytes", "a body that is shorter than it says", "an answer drop by drop")
"""Faults of answers alone."""
SILENT = ("an answer that does not come", "an answer drop by drop")


def rows(column, *quick):
    """Return the faults with a value in a column; those that are not `quick` are further variants."""
    chosen = [(kind, values[column]) for kind, values in FAULTS.items() if values[column] is not None]
    return [pytest.param(*row, marks=() if row[0] in quick else pytest.mark.long) for row in chosen]


@pytest.mark.parametrize(("kind", "tries"), rows(0, "an answer that is cut", "wrong bytes"))
def test_temporary_faults_are_retried(kind, tries, moto, tmp_path):
    fault = Fault(kind, tries)
    with proxy(moto, fault) as address:
        team = team_at(f"s3://{servers.BUCKET}/{tmp_path.name}", tmp_path, address)
        if kind in SILENT:
            team.remote = Remote(team.remote.url, address, timeout_s=5.0)
        some_artifact(team.first)
        push(team.remote, team.first, KEY)
        assert pull(team.remote, team.second, KEY)
    assert fault.spoiled > 10
    assert contents(team.second.path(KEY)) == contents(team.first.path(KEY))


@pytest.mark.parametrize(("kind", "reason"), rows(1, "wrong bytes", "expired credentials"))
def test_permanent_faults_are_reported_and_nothing_wrong_is_used(kind, reason, moto, tmp_path):
    url = f"s3://{servers.BUCKET}/{tmp_path.name}"
    team = team_at(url, tmp_path, moto)
    some_artifact(team.first)
    fault = Fault(kind, ALWAYS)
    with proxy(moto, fault) as address:
        spoiled = Remote(url, address, timeout_s=0.3 if kind in SILENT else 20.0)
        if kind not in SENT_UNCHANGED:
            with pytest.raises(RemoteError, match=f"(?i){reason}") as output:
                push(spoiled, team.first, KEY)
            assert not team.copies()
            # the server repeats the credentials
            assert "-of-nobody" not in str(output.value) and output.value.__suppress_context__
        push(team.remote, team.first, KEY)
        with pytest.raises(RemoteError, match=f"(?i){reason}") as output:
            pull(spoiled, team.second, KEY)
        assert "-of-nobody" not in str(output.value)
    assert team.second.problem(KEY) == "never run"
    assert pull(team.remote, team.second, KEY)  # goes on with what is right of what came
    assert contents(team.second.path(KEY)) == contents(team.first.path(KEY))


def test_interrupt_does_not_wait_for_answers():
    answer, requests = threading.Event(), []

    def wait(number):
        requests.append(number)
        return number == 0 or answer.wait(60)

    def interrupt(result):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Remote("file:///nowhere").map(wait, range(100), interrupt)
    answer.set()
    assert len(requests) < 20


def test_the_time_limit_of_a_request_grows_with_its_size(monkeypatch):
    limits_s = []
    monkeypatch.setattr(remote, "sync", lambda *_, timeout: limits_s.append(timeout))
    system = SimpleNamespace(async_impl=True, loop=None, _put_file=None)
    for size in (0, 10 * MIN_BYTES_PER_S):
        Remote("s3://bucket", timeout_s=20.0)._run(system, "put_file", size=size)
    assert limits_s == [20.0, 30.0]


def test_a_push_to_a_full_disk_is_reported_and_the_next_sends_only_missing_files(file_team, monkeypatch):
    some_artifact(file_team.first)
    real, synced, upload, sent = os.fsync, [], Remote.upload, []

    def full(descriptor):
        synced.append(descriptor)
        if len(synced) > 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    with monkeypatch.context() as small:
        small.setattr(os, "fsync", full)
        with pytest.raises(RemoteError, match=r"No space left on device; .*grpoflow gc --remote"):
            push(file_team.remote, file_team.first, KEY)
    assert not file_team.copies() and not list((file_team.root / ".tmp").iterdir())
    monkeypatch.setattr(Remote, "upload", lambda *values: (sent.append(values[2]), upload(*values)))
    assert push(file_team.remote, file_team.first, KEY) > 0
    files = len(file_team.copies()[0].manifest.files)
    assert 0 < len(sent) < files
    assert pull(file_team.remote, file_team.second, KEY)


def test_a_full_disk_of_this_machine_is_not_reported_as_the_remotes(file_team, monkeypatch):
    some_artifact(file_team.first)
    push(file_team.remote, file_team.first, KEY)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(shutil, "copyfile", full)  # by which fsspec copies
    with pytest.raises(StoreError, match="choose another store") as raised:
        pull(file_team.remote, file_team.second, KEY)
    assert not isinstance(raised.value, RemoteError)


def test_renewed_credentials_are_read_again(tmp_path, monkeypatch):
    """A process that runs for weeks pushes each artifact that its run commits."""
    key, secret = list(servers.CREDENTIALS.values())[:2]
    for name in servers.CREDENTIALS:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))

    def renew(secret):
        (tmp_path / "credentials").write_text(
            f"[default]\naws_access_key_id={key}\naws_secret_access_key={secret}\n"
        )

    (tmp_path / "served").mkdir()
    with servers.rclone(tmp_path / "served") as address:
        team = team_at(f"s3://{servers.BUCKET}/x", tmp_path, address)
        some_artifact(team.first)
        renew("an-old-one")
        with pytest.raises(RemoteError, match=r"(?i)signature|AccessDenied|403"):
            push(team.remote, team.first, KEY)
        renew(secret)
        assert push(team.remote, team.first, KEY) > 0
        assert pull(team.remote, team.second, KEY)


def test_server_with_an_unknown_host_key_is_refused(tmp_path, monkeypatch):
    with servers.sshd(tmp_path) as (host, home):
        monkeypatch.setenv("HOME", str(home))
        (home / ".ssh" / "known_hosts").write_text("")
        team = team_at(f"sftp://{host}{tmp_path}/remote", tmp_path)
        some_artifact(team.first)
        opened: list[object] = []
        real = Remote._system
        monkeypatch.setattr(Remote, "_system", lambda remote: opened.append(remote) or real(remote))
        with pytest.raises(RemoteError, match="is not in known_hosts"):
            push(team.remote, team.first, KEY)
        second = (home / ".ssh" / "id_ed25519.pub").read_text().split()[:2]
        address = host.rpartition("@")[2].replace("127.0.0.1", "[127.0.0.1]")
        (home / ".ssh" / "known_hosts").write_text(" ".join([address, *second]) + "\n")
        with pytest.raises(RemoteError, match="another key than in known_hosts"):
            push(team.remote, team.first, KEY)
        assert len(opened) == 2  # once each: another try changes nothing
    assert not (tmp_path / "remote").exists()
