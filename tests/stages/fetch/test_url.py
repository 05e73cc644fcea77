import hashlib

import pytest

from stages.base.errors import InputError
from stages.fetch import url
from stages.fetch.sources import FileConfig
from tests.stages.fetch.settings import fetch

CONTENT = bytes(range(256)) * 2000
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def files(hub):
    hub.plain["/raw/rows.jsonl"] = CONTENT
    return hub


def download(hub, work, sha256=DIGEST, path="/raw/rows.jsonl", **changes):
    return url.download(FileConfig(hub.url + path, sha256), fetch(**changes), work)


def content(got):
    return (got.root / got.files[0].path).read_bytes()


def test_a_file_without_a_configured_digest_is_accepted_with_its_digest_printed(files, tmp_path, capsys):
    got = download(files, tmp_path, sha256=None)
    assert (got.files[0].sha256, got.files[0].listed) == (DIGEST, False)
    assert f"no sha256 is configured; the file's is {DIGEST}" in capsys.readouterr().out


def test_bytes_that_differ_from_the_configured_digest_are_refused_and_removed(files, tmp_path):
    with pytest.raises(InputError, match=f"has sha256 {DIGEST}, configured is {'0' * 64}; check the address"):
        download(files, tmp_path, sha256="0" * 64)
    assert len(files.requests) == 1
    assert not [file for file in tmp_path.rglob("*") if file.is_file() and file.stat().st_size]


@pytest.mark.parametrize(("status", "remedy"), [(404, "check the address"), (403, "netrc"), (401, "netrc")])
def test_a_refusal_is_not_retried(files, tmp_path, status, remedy):
    files.statuses = [status]
    with pytest.raises(InputError, match=f"127.0.0.1.*HTTP {status}.*{remedy}"):
        download(files, tmp_path)
    assert len(files.requests) == 1


def test_a_broken_transfer_leaves_no_file(files, tmp_path):
    files.cut_after = 3 << 16
    with pytest.raises(InputError, match=r"127\.0\.0\.1.*run again"):
        download(files, tmp_path)
    assert not [file for file in tmp_path.rglob("*") if file.is_file()]
    assert content(download(files, tmp_path)) == CONTENT


def test_a_busy_server_is_retried(files, tmp_path):
    files.statuses = [503, 429]
    assert content(download(files, tmp_path)) == CONTENT
    assert len(files.requests) == 3


def test_a_file_with_the_configured_digest_is_fetched_once(files, tmp_path):
    cache = {"cache_dir": str(tmp_path / "cache")}
    download(files, tmp_path, **cache)
    assert content(download(files, tmp_path, **cache)) == CONTENT
    assert len(files.requests) == 1


def test_queries_and_proxy_passwords_are_never_shown(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(url, "RETRIES", 0)
    monkeypatch.setenv("http_proxy", "http://user:hunter2@127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    with pytest.raises(InputError, match="ProxyError") as caught:
        download(files, tmp_path, path="/raw/rows.jsonl?version=hidden")
    reported = str(caught.value) + capsys.readouterr().out
    assert "hunter2" not in reported and "hidden" not in reported
